"""`mrcfa export` and `mrcfa quantize`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mrcfa
from mrcfa.bundle.manifest import Device, Output
from mrcfa.bundle.precisions import EIGHT_BITS, EXPORTED, PREFERRED
from mrcfa.console.arguments import Keep, Maa, Sar, Scales, config_changes, parse_size, warn_of_swap
from mrcfa.console.progress import filling, working
from mrcfa.data import demo as demo_model
from mrcfa.data.datasets import DATASETS, dataset_named
from mrcfa.data.labels import Labels, read_labels
from mrcfa.errors import Mismatch, named
from mrcfa.export.quantization.choices import Method
from mrcfa.model.config import Backbone

if TYPE_CHECKING:
    from mrcfa.training.checkpoints import Facts


def export(
    backbone: Annotated[Backbone | None, typer.Option(help="MiT backbone. Default: b1.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help=f"Preset and class names: {named(DATASETS)}. Default: vspw."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="The authors' checkpoint, or one of mrcfa train, which brings it all."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="The weights in the box, which know mrcfa sample only.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(help="Classes of your own: a name per line, or JSON.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Network input, HxW, multiples of 32.")] = None,
    frame: Annotated[str | None, typer.Option(help="Camera frame, HxW; default: --size.")] = None,
    output: Annotated[Output, typer.Option(help="What the decoder answers.")] = Output.MASK,
    streams: Annotated[int, typer.Option(help="Videos that one run of the graphs serves.")] = 1,
    variants: Annotated[
        str,
        typer.Option(
            "--variants",
            "--precision",
            help=f"From {named(EXPORTED[Device.CPU])} (for CPUs), "
            f"{named(EXPORTED[Device.GPU])} (for GPUs).",
        ),
    ] = ",".join(PREFERRED.values()),
    activation_memory: Annotated[
        int | None,
        typer.Option(
            metavar="MB", help="For a decoder, beside weights; less means more groups of tokens."
        ),
    ] = None,
    references: Annotated[str | None, typer.Option(help="Offsets, such as 9,6,3.")] = None,
    keep: Keep = None,
    scales: Scales = None,
    sar: Sar = True,
    maa: Maa = True,
    opset: Annotated[int, typer.Option(help="ONNX opset, 17 to 23.")] = 18,
    inline_functions: Annotated[
        bool, typer.Option("--inline-functions", help="For parsers that know no functions.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random weights used without --weights.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Default: bundles/DATASET-BACKBONE, or bundles/demo."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
) -> None:
    """Write encoder and decoder as ONNX, checked against the model, with a manifest."""
    if demo:
        if weights is not None:
            raise Mismatch(f"--demo brings its own weights and {weights} others; give one")
        weights = demo_model.WEIGHTS
        typer.echo("mrcfa: the demo's weights know the world of mrcfa sample only", err=True)
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
                typer.echo(f"mrcfa: trained with {name} {found}, exported with {value}", err=True)
        config, usual = replace(trained.config, **changes), trained.config.size
        named_classes = named_classes or trained.labels
    taken = parse_size(frame) if frame else config.size
    warn_of_swap("--size", config.size, usual, "the usual")
    warn_of_swap("--frame", taken, config.size, "the network's")
    name = "demo" if demo else f"{config.dataset}-{config.backbone}"
    path = out or Path("bundles") / name
    if weights is None:
        typer.echo(
            f"mrcfa: no --weights given: the model is random (seed {seed}) and its masks are "
            "meaningless; speed and parity are real",
            err=True,
        )

    from mrcfa.export.exporter import ExportOptions, check_options, export_bundle
    from mrcfa.export.memory import WORTH_TELLING, check_memory
    from mrcfa.export.variants import variants_named

    options = ExportOptions(
        frame=taken,
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
    if needed >= WORTH_TELLING:
        typer.echo(f"mrcfa: this takes about {needed / 1e9:.1f} GB of memory", err=True)
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
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    data: Annotated[
        str, typer.Option(help="A dataset, whose labels judge, or any video or folder of images.")
    ],
    frames: Annotated[int, typer.Option(help="How many to calibrate and judge on.")] = 64,
    precision: Annotated[
        str,
        typer.Option(
            metavar=f"[{'|'.join(EIGHT_BITS)}]",
            help=" or ".join(f"{each.name} ({each.gpus})" for each in EIGHT_BITS.values()) + ".",
        ),
    ] = next(iter(EIGHT_BITS)),
    method: Annotated[
        Method | None,
        typer.Option(
            help="Where ranges end. Default: "
            + ", ".join(f"{each.calibration} for {each.name}" for each in EIGHT_BITS.values())
            + "."
        ),
    ] = None,
    keep_loss: Annotated[
        float,
        typer.Option(help="Points of mIoU that may be lost; without labels, of equal pixels."),
    ] = 0.5,
    split: Annotated[
        str | None, typer.Option(help="Which videos of a dataset. Default: train, else val.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Default: all cores.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the variant.")] = False,
) -> None:
    """Add an 8-bit variant to a bundle: as many blocks as the allowed loss lets be in 8 bits."""
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
        typer.echo("mrcfa: stopped; the same command goes on where it was", err=True)
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
    """What a checkpoint of `mrcfa train` says of itself, if it is one and no flag contradicts."""
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
                f"{weights} was trained with {found} where {flag} says {given}; leave {flag} out"
            )
    return facts
