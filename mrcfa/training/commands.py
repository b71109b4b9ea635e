"""The command `mrcfa train`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import mrcfa
from mrcfa.console.arguments import (
    Keep,
    Maa,
    References,
    Sar,
    Scales,
    ablation,
    advanced,
    config_changes,
    parse_size,
    warn_of_swap,
)
from mrcfa.console.notices import warn
from mrcfa.console.progress import training
from mrcfa.errors import InvalidValue, MrcfaError, counted
from mrcfa.model.config import Backbone, Method
from mrcfa.training.recipe import Precision, Recipe

PAPER = Recipe()


def train(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(help="Folder of VSPW, Cityscapes, or your own dataset with a labels.json."),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for checkpoints, log and report.")
    ],
    backbone: Annotated[
        Backbone, typer.Option(metavar="B", help="MiT backbone, b0 (smallest) to b5.")
    ] = Backbone.B1,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Preset of size, references and scales: vspw or cityscapes."
        ),
    ] = "vspw",
    weights: Annotated[
        Path | None,
        typer.Option(help="Initial weights: a checkpoint or an ImageNet MiT. Default: random."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="HxW",
            help="Size of the network's input, in multiples of 32. Default: the preset's.",
        ),
    ] = None,
    crop: Annotated[
        str, typer.Option(metavar="HxW", help="Size of the training crops, in multiples of 32.")
    ] = "480x480",
    iterations: Annotated[
        int, typer.Option(metavar="N", help="Number of training steps.")
    ] = PAPER.iterations,
    batch: Annotated[
        int, typer.Option(metavar="N", help="Clips per step, over all processes.")
    ] = PAPER.batch,
    learning_rate: Annotated[
        float, typer.Option(metavar="RATE", help="Peak learning rate of the backbone.")
    ] = PAPER.learning_rate,
    workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of processes that read clips.")
    ] = 2,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in --out with its own settings; --iterations extends it.",
        ),
    ] = False,
    method: Annotated[
        Method,
        ablation(
            metavar="NAME", help="mrcfa, or one of its baselines segformer and feature-pyramid."
        ),
    ] = Method.MRCFA,
    references: References = None,
    keep: Keep = None,
    scales: Scales = None,
    sar: Sar = True,
    maa: Maa = True,
    head_factor: Annotated[
        float,
        advanced(metavar="FACTOR", help="Factor of the learning rate for all but the backbone."),
    ] = PAPER.head_factor,
    warmup: Annotated[
        int, advanced(metavar="N", help="Steps of linear learning rate warm-up.")
    ] = PAPER.warmup,
    ratio: Annotated[
        tuple[float, float],
        advanced(metavar="LOW HIGH", help="Range of the random scaling of frames before cropping."),
    ] = PAPER.ratio,
    drop_path: Annotated[
        float,
        advanced(
            min=0, max=0.9, metavar="P", help="Drop path probability of the backbone's last block."
        ),
    ] = PAPER.drop_path,
    dropout: Annotated[
        float,
        advanced(
            min=0, max=0.9, metavar="P", help="Dropout probability of channels before classifiers."
        ),
    ] = PAPER.dropout,
    precision: Annotated[
        Precision, advanced(metavar="NAME", help="Format of matrix products, fp32 or bf16.")
    ] = Precision.FP32,
    validate_every: Annotated[
        int, advanced(min=1, metavar="N", help="Steps between two validations.")
    ] = 2000,
    save_every: Annotated[int, advanced(min=1, metavar="N", help="Steps between two saves.")] = 200,
    seed: Annotated[
        int, advanced(min=0, metavar="N", help="Seed of random weights, samples and dropout.")
    ] = 0,
    compile_: Annotated[
        bool,
        advanced(
            "--compile",
            help="Compile the model with torch.compile; the first step then takes minutes.",
        ),
    ] = False,
    profile: Annotated[
        int | None,
        advanced(
            min=1,
            metavar="N",
            help="After N steps, print the mean time of reading, forward, backward and update.",
        ),
    ] = None,
) -> None:
    """Train the model on a dataset with the paper's recipe."""
    from mrcfa.data.datasets import dataset_named, labelled_videos
    from mrcfa.training.checkpoints import read_facts
    from mrcfa.training.log import entries_of
    from mrcfa.training.loop import RunOptions, resumable
    from mrcfa.training.loop import train as run_training
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
        # A resumed run has its own settings; options given now must be equal to them or extend it.
        given = {"dataset" if name == "preset" else name for name in _given(context)}
        config = replace(found.config, **{name: model[name] for name in given & model.keys()})
        recipe = replace(found.recipe, **{name: settings[name] for name in given & settings.keys()})
        if "validate_every" not in given:
            validate_every = found.validate_every
        if "save_every" not in given:
            save_every = found.save_every
    if config.method is Method.SEGFORMER and references is not None:
        raise InvalidValue("segformer uses no references; leave --references out")
    if leads:
        for sentence in summary(videos, labelled_videos(data, "val", 0), config.depth):
            warn(sentence)
    options = RunOptions(out, workers, validate_every, save_every, resume, compile_, profile)
    try:
        with training(recipe.iterations) as progress:
            best = run_training(data, config, recipe, options, weights, progress, warn)
    except KeyboardInterrupt:
        if leads:
            warn(_stopped(out, data))
        raise typer.Exit(130) from None
    if leads:
        seconds, waiting = pace(step["seconds"] for step in entries_of(out) if "seconds" in step)
        facts = read_facts(best)
        score = "" if facts is None or facts.score is None else f" with mIoU {facts.score:.4f}"
        typer.echo(
            f"trained {counted(recipe.iterations, 'iteration')} at {seconds:.2f} s each, of which "
            f"{waiting:.0%} was waiting for data; the best checkpoint is {best}{score}"
        )


def _given(context: typer.Context) -> set[str]:
    """Names of the parameters given on the command line, without those left at their default."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source is not None and source.name == "COMMANDLINE"}


def _stopped(out: Path, data: Path) -> str:
    """A sentence on how to continue an interrupted run."""
    from mrcfa.training.loop import resumable

    try:
        done = resumable(out)
    except MrcfaError:
        return "stopped before anything was saved; run the same command to start again"
    return (
        f"stopped; {out} is saved after {done.iteration} of {done.recipe.iterations} iterations; "
        f"continue with: mrcfa train {data} -o {out} --resume"
    )
