"""`mrcfa export` and `mrcfa quantize`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mrcfa
from mrcfa.bundle.manifest import Device, Output
from mrcfa.bundle.precisions import EIGHT_BITS, EXPORTED, PREFERRED
from mrcfa.console.arguments import (
    ADVANCED,
    Keep,
    Maa,
    References,
    Sar,
    Scales,
    config_changes,
    parse_size,
    warn_of_swap,
)
from mrcfa.console.progress import filling, working
from mrcfa.data import demo as demo_model
from mrcfa.data.datasets import DATASETS, dataset_named
from mrcfa.data.labels import Labels, read_labels
from mrcfa.errors import Mismatch, named
from mrcfa.export.quantization.choices import Method
from mrcfa.model.config import Backbone
from mrcfa.model.input_format import SD_LINES, InputFormat, Layout, Matrix, Range

if TYPE_CHECKING:
    from mrcfa.training.checkpoints import Facts


def export(
    backbone: Annotated[
        Backbone | None,
        typer.Option(help="MiT backbone. Default: that of --weights, else b1."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help=f"Dataset whose preset and class names to use: {named(DATASETS)}. Default: that "
            "of --weights, else vspw."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint of the authors, or of mrcfa train, which also sets backbone, dataset, "
            "classes and size. Default: random weights."
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Use the included demo weights, which know the streets of mrcfa sample only.",
        ),
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="File with your own class names: text with one name per line, or JSON. Default: "
            "the classes of --weights or --dataset."
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="HxW",
            help="Size of the network's input in pixels, height first, multiples of 32. Default: "
            "that of --weights or --dataset.",
        ),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(
            metavar="HxW",
            help="Size of the camera's frames in pixels, height first; the graphs resize them. "
            "Default: --size.",
        ),
    ] = None,
    variants: Annotated[
        str,
        typer.Option(
            "--variants",
            "--precision",
            metavar="LIST",
            help="Graphs to write, separated by commas: "
            f"{named(EXPORTED[Device.CPU])} (for CPUs), {named(EXPORTED[Device.GPU])} (for GPUs).",
        ),
    ] = ",".join(PREFERRED.values()),
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Directory of the bundle. Default: bundles/DATASET-BACKBONE, or bundles/demo.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
    layout: Annotated[
        Layout,
        typer.Option(
            "--input",
            help="Pixels of the camera's frames; nv12 is what decoders and cameras deliver.",
            rich_help_panel=ADVANCED,
        ),
    ] = Layout.RGB,
    matrix: Annotated[
        Matrix | None,
        typer.Option(
            "--colour",
            help=f"Matrix of --input nv12. Default: bt601 up to {SD_LINES} lines, bt709 above.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    levels: Annotated[
        Range | None,
        typer.Option(
            "--range",
            help="Range of --input nv12: Y from 16 to 235 (limited), or from 0 to 255 (full). "
            "Default: limited.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    references: References = None,
    keep: Keep = None,
    scales: Scales = None,
    sar: Sar = True,
    maa: Maa = True,
    output: Annotated[
        Output,
        typer.Option(
            help="Output of the decoder: the mask, or logits at 1/4 of the network's size.",
            rich_help_panel=ADVANCED,
        ),
    ] = Output.MASK,
    streams: Annotated[
        int,
        typer.Option(
            help="Number of videos that one run of the graphs segments at once, 1 to 32.",
            rich_help_panel=ADVANCED,
        ),
    ] = 1,
    activation_memory: Annotated[
        int | None,
        typer.Option(
            metavar="MB",
            help="Memory for the decoder's intermediate tensors, in MB, without weights; less "
            "means more groups of tokens, one after the other. Default: chosen by size.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    opset: Annotated[
        int, typer.Option(help="ONNX opset of the graphs, 17 to 23.", rich_help_panel=ADVANCED)
    ] = 18,
    inline_functions: Annotated[
        bool,
        typer.Option(
            "--inline-functions",
            help="Write graphs without ONNX functions, for parsers that do not support them.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the random weights that are used without --weights.",
            rich_help_panel=ADVANCED,
        ),
    ] = 0,
) -> None:
    """Write encoder and decoder as ONNX graphs, checked against the model, with a manifest."""
    if demo:
        if weights is not None:
            raise Mismatch(f"--demo and --weights {weights} exclude each other; leave one out")
        weights = demo_model.WEIGHTS
        typer.echo("mrcfa: the demo weights know the streets of mrcfa sample only", err=True)
    changes = config_changes(size, references, keep, scales, sar, maa)
    named_classes = None if labels is None else read_labels(labels)
    trained = None if weights is None else _trained(weights, backbone, dataset, named_classes)
    if trained is None:
        if named_classes is not None:
            changes["classes"] = len(named_classes.names)
        config = mrcfa.preset(dataset or "vspw", (backbone or Backbone.B1).value, **changes)
        usual = dataset_named(config.dataset).preset.size
    else:
        for name, value in changes.items():
            if value != (found := getattr(trained.config, name)):
                typer.echo(
                    f"mrcfa: the model was trained with {name} {found}, exported with {value}",
                    err=True,
                )
        config, usual = replace(trained.config, **changes), trained.config.size
        named_classes = named_classes or trained.labels
    frame_size = parse_size(frame) if frame else config.size
    warn_of_swap("--size", config.size, usual, "the usual")
    warn_of_swap("--frame", frame_size, config.size, "the network's")
    if layout is not Layout.NV12 and (matrix or levels):
        flag = "--colour" if matrix else "--range"
        raise Mismatch(f"{flag} is for --input nv12, not for {layout.value}; leave it out")
    name = "demo" if demo else f"{config.dataset}-{config.backbone}"
    path = out or Path("bundles") / name
    if weights is None:
        typer.echo(
            f"mrcfa: without --weights the model is random (seed {seed}): its masks mean nothing, "
            "while speed and parity are real",
            err=True,
        )

    from mrcfa.export.exporter import ExportOptions, check_options, export_bundle
    from mrcfa.export.memory import WORTH_A_WARNING, check_memory
    from mrcfa.export.variants import variants_named

    options = ExportOptions(
        frame=frame_size,
        input=InputFormat.usual(layout, frame_size[0], matrix, levels),
        output=output,
        streams=streams,
        variants=variants_named(variants),
        opset=opset,
        inline_functions=inline_functions,
        activation_memory=None if activation_memory is None else activation_memory * 10**6,
        labels=named_classes,
    )
    check_options(config, options)
    needed = check_memory(config, options)
    if needed >= WORTH_A_WARNING:
        typer.echo(f"mrcfa: this export needs about {needed / 1e9:.1f} GB of memory", err=True)
    left_out: list[str] = []
    with working() as say:
        bundle = export_bundle(config, path, weights, seed, options, force, say, left_out.append)
    for sentence in left_out:
        typer.echo(f"mrcfa: {sentence}", err=True)
    for name, variant in bundle.manifest.variants.items():
        if variant.note:
            typer.echo(f"{name}: {variant.note}")
        for check in variant.parity:
            typer.echo(
                f"{name} {check['name']}: {check['value']:.3g} "
                f"({check['operator']} {check['threshold']:.3g})"
            )
    typer.echo(f"wrote {path}")


def quantize(
    bundle: Annotated[Path, typer.Argument(help="Directory of the bundle.")],
    data: Annotated[
        str,
        typer.Option(
            help="Data to calibrate on: a dataset with labels, a video, or a folder of images."
        ),
    ],
    precision: Annotated[
        str,
        typer.Option(
            metavar=f"[{'|'.join(EIGHT_BITS)}]",
            help=f"8-bit format: {named(f'{x.name} ({x.gpus})' for x in EIGHT_BITS.values())}.",
        ),
    ] = next(iter(EIGHT_BITS)),
    keep_loss: Annotated[
        float,
        typer.Option(
            help="Largest allowed loss against FP32 in points: of mIoU, or without labels of "
            "pixels with the same class."
        ),
    ] = 0.5,
    frames: Annotated[
        int, typer.Option(help="Number of frames to calibrate on and to measure the loss on.")
    ] = 64,
    split: Annotated[
        str | None,
        typer.Option(help="Split of the dataset to use. Default: train, or val if it is missing."),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 means all cores.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the bundle's variant of this format.")
    ] = False,
    method: Annotated[
        Method | None,
        typer.Option(
            help="How the range of a tensor is found. Default: "
            f"{named(f'{x.calibration} for {x.name}' for x in EIGHT_BITS.values())}.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> None:
    """Add an 8-bit variant to a bundle, with as many 8-bit blocks as the allowed loss permits."""
    from mrcfa.bundle.inspection import quantization_lines
    from mrcfa.export.quantization.quantizer import QuantizeOptions, quantize

    options = QuantizeOptions(
        data=data,
        split=split,
        frames=frames,
        precision=precision,
        method=method,
        keep_loss=keep_loss,
        force=force,
        threads=threads,
    )
    try:
        with filling() as show:
            _, found = quantize(bundle, options, show)
    except KeyboardInterrupt:
        typer.echo("mrcfa: stopped; the same command resumes where it stopped", err=True)
        raise typer.Exit(130) from None
    for line in quantization_lines(found):
        typer.echo(line)
    typer.echo(
        f"added the variant {precision} to {bundle}; next: mrcfa build {bundle} "
        f"--precision {precision}"
    )


def _trained(
    weights: Path, backbone: Backbone | None, dataset: str | None, labels: Labels | None
) -> "Facts | None":
    """Facts in a checkpoint of `mrcfa train`; None for any other file.

    Raises Mismatch if an option contradicts the checkpoint.
    """
    if weights.suffix != ".safetensors" or not weights.is_file():
        return None
    from mrcfa.training.checkpoints import read_facts

    facts = read_facts(weights)
    if facts is None:
        return None
    for flag, given, found in (
        ("--backbone", backbone and backbone.value, facts.config.backbone),
        ("--dataset", dataset, facts.config.dataset),
        ("--labels", labels and len(labels.names), facts.config.classes),
    ):
        if given is not None and given != found:
            raise Mismatch(
                f"{weights} was trained with {found}, and {flag} says {given}; leave {flag} out"
            )
    return facts
