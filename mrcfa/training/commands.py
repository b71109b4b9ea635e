"""`mrcfa train`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import mrcfa
from mrcfa.console.arguments import Keep, Maa, Sar, Scales, config_changes, parse_size, warn_of_swap
from mrcfa.console.notices import tell
from mrcfa.console.progress import training
from mrcfa.errors import InvalidValue, MrcfaError, counted
from mrcfa.model.config import Backbone, Method
from mrcfa.training.recipe import Precision, Recipe

PAPER = Recipe()


def train(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="VSPW, Cityscapes, or your own with labels.json.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The run's directory.")],
    method: Annotated[
        Method, typer.Option(help="The paper's model, or a baseline of its ablation.")
    ] = Method.MRCFA,
    backbone: Annotated[Backbone, typer.Option(help="MiT backbone.")] = Backbone.B1,
    preset: Annotated[str, typer.Option(help="Whose references and scales: vspw, ….")] = "vspw",
    weights: Annotated[
        Path | None, typer.Option(help="To start from: a checkpoint, or an ImageNet MiT backbone.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Frames are resized to this, HxW.")] = None,
    crop: Annotated[str, typer.Option(help="What is cut out of them, HxW.")] = "480x480",
    references: Annotated[str | None, typer.Option(help="Offsets, such as 9,6,3.")] = None,
    keep: Keep = None,
    scales: Scales = None,
    sar: Sar = True,
    maa: Maa = True,
    iterations: Annotated[int, typer.Option(help="How many steps.")] = PAPER.iterations,
    batch: Annotated[int, typer.Option(help="Clips per step.")] = PAPER.batch,
    learning_rate: Annotated[float, typer.Option(help="Of the backbone.")] = PAPER.learning_rate,
    head_factor: Annotated[
        float, typer.Option(help="Times that rate for the rest.")
    ] = PAPER.head_factor,
    warmup: Annotated[int, typer.Option(help="Steps of warm-up.")] = PAPER.warmup,
    ratio: Annotated[
        tuple[float, float], typer.Option(help="Least and greatest resizing before the crop.")
    ] = PAPER.ratio,
    drop_path: Annotated[float, typer.Option(min=0, max=0.9, help="In MiT.")] = PAPER.drop_path,
    dropout: Annotated[
        float, typer.Option(min=0, max=0.9, help="Of channels before classifiers.")
    ] = PAPER.dropout,
    precision: Annotated[Precision, typer.Option(help="Of products.")] = Precision.FP32,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read clips.")] = 2,
    validate_every: Annotated[int, typer.Option(min=1, help="Steps.")] = 2000,
    save_every: Annotated[int, typer.Option(min=1, help="Steps.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, clips and dropout.")] = 0,
    compile_: Annotated[
        bool, typer.Option("--compile", help="torch.compile; the first step takes minutes.")
    ] = False,
    profile: Annotated[
        int | None, typer.Option(min=1, help="After so many steps, say how their time is spent.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in -o, with its settings; --iterations extends it."
        ),
    ] = False,
) -> None:
    """Train the model by the paper's recipe."""
    from mrcfa.data.datasets import dataset_named, labelled_videos
    from mrcfa.training.checkpoints import read_facts
    from mrcfa.training.log import entries_of
    from mrcfa.training.loop import RunOptions, resumable
    from mrcfa.training.loop import train as fit
    from mrcfa.training.stopwatch import pace
    from mrcfa.training.survey import summary

    leads = os.environ.get("RANK", "0") == "0"
    found = resumable(out) if resume else None
    videos = labelled_videos(data, "train", 0)

    model = config_changes(size, references, keep, scales, sar, maa)
    model |= {"method": method, "backbone": backbone.value, "dataset": preset}
    model |= {"sar": sar, "maa": maa}
    settings: dict[str, Any] = {
        "iterations": iterations,
        "batch": batch,
        "learning_rate": learning_rate,
        "head_factor": head_factor,
        "warmup": warmup,
        "crop": parse_size(crop),
        "ratio": ratio,
        "drop_path": drop_path,
        "dropout": dropout,
        "precision": precision,
        "seed": seed,
    }
    if found is None:
        config = mrcfa.preset(**model, classes=len(videos.labels.names))
        recipe = Recipe(**settings)
        warn_of_swap("--size", config.size, dataset_named(preset).preset.size, "the usual")
    else:
        # A run that goes on has its own settings; flags are compared with them, or extend it.
        flags = {"dataset" if flag == "preset" else flag for flag in _given(context)}
        config = replace(found.config, **{flag: model[flag] for flag in flags & model.keys()})
        recipe = replace(found.recipe, **{flag: settings[flag] for flag in flags & settings.keys()})
        if "validate_every" not in flags:
            validate_every = found.validate_every
        if "save_every" not in flags:
            save_every = found.save_every
    if config.method is Method.SEGFORMER and references is not None:
        raise InvalidValue("segformer segments every frame by itself; leave --references out")
    if leads:
        for sentence in summary(videos, labelled_videos(data, "val", 0), config.depth):
            tell(sentence)
    options = RunOptions(out, workers, validate_every, save_every, resume, compile_, profile)
    try:
        with training(recipe.iterations) as show:
            best = fit(data, config, recipe, options, weights, show, tell)
    except KeyboardInterrupt:
        if leads:
            tell(_stopped(out, data))
        raise typer.Exit(130) from None
    if leads:
        seconds, waiting = pace(step["seconds"] for step in entries_of(out) if "seconds" in step)
        facts = read_facts(best)
        score = "" if facts is None or facts.score is None else f" with mIoU {facts.score:.4f}"
        typer.echo(
            f"trained {counted(recipe.iterations, 'iteration')} of {seconds:.2f} s, "
            f"{waiting:.0%} of it waiting for data; the best checkpoint is {best}{score}"
        )


def _given(context: typer.Context) -> set[str]:
    """The names of the parameters that the command line has, defaults apart."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source is not None and source.name == "COMMANDLINE"}


def _stopped(out: Path, data: Path) -> str:
    """How a run that was interrupted goes on."""
    from mrcfa.training.loop import resumable

    try:
        done = resumable(out)
    except MrcfaError:
        return "stopped before anything was saved; the same command begins anew"
    return (
        f"stopped; {out} is saved after {done.iteration} of {done.recipe.iterations} iterations, "
        f"and goes on with: mrcfa train {data} -o {out} --resume"
    )
