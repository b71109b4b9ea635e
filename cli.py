"""The `mrcfa` command: one short function per verb; heavy imports happen inside them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import mrcfa
from mrcfa.errors import MrcfaError
from mrcfa.extras import load

app = typer.Typer(
    help="MRCFA video semantic segmentation: from PyTorch to ONNX and TensorRT.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Run the command line; an `MrcfaError` becomes one sentence and exit code 2."""
    try:
        app()
    except MrcfaError as error:
        typer.echo(f"mrcfa: {error}", err=True)
        sys.exit(2)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"mrcfa {mrcfa.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from mrcfa.machine import findings

    found = findings()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
        return
    for finding in found:
        if finding.found is None:
            text = f"missing; for {finding.enables}: {finding.remedy}"
        else:
            text = f"{finding.found}: {finding.enables}"
        typer.echo(f"{'-' if finding.found is None else '✓'} {finding.name:13} {text}")


def _size(text: str) -> tuple[int, int]:
    """`480x864` -> (480, 864): height first, as everywhere in mrcfa."""
    height, _, width = text.partition("x")
    if not (height.isdigit() and width.isdigit()):
        raise MrcfaError(f"{text!r} is no size; write height x width, such as 480x864")
    return int(height), int(width)


@app.command()
def export(
    backbone: Annotated[str, typer.Option(help="MiT backbone: b0 … b5.")] = "b1",
    dataset: Annotated[str, typer.Option(help="Preset: vspw or cityscapes.")] = "vspw",
    weights: Annotated[
        Path | None, typer.Option(help="The authors' checkpoint, or safetensors.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Network input, HxW, multiples of 32.")] = None,
    frame: Annotated[str | None, typer.Option(help="Camera frame, HxW; default: --size.")] = None,
    output: Annotated[str, typer.Option(help="What the decoder answers: mask or logits.")] = "mask",
    precision: Annotated[str, typer.Option(help="fp32, fp16 or both.")] = "fp32,fp16",
    references: Annotated[str | None, typer.Option(help="Offsets, such as 9,6,3.")] = None,
    keep: Annotated[float | None, typer.Option(help="Share of tokens that STM keeps.")] = None,
    opset: Annotated[int, typer.Option(help="ONNX opset, 17 or later.")] = 18,
    inline_functions: Annotated[
        bool, typer.Option("--inline-functions", help="For parsers that know no functions.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random weights used without --weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Default: bundles/DATASET-BACKBONE.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
) -> None:
    """Write encoder and decoder as ONNX, checked against the model, with a manifest."""
    changes: dict[str, object] = {}
    if size is not None:
        changes["size"] = _size(size)
    if references is not None:
        changes["references"] = _offsets(references)
    if keep is not None:
        changes["keep"] = keep
    config = mrcfa.preset(dataset, backbone, **changes)
    path = out or Path("bundles") / f"{dataset}-{backbone}"
    if weights is None:
        typer.echo(
            f"mrcfa: no --weights given: the model is random (seed {seed}) and its masks are "
            "meaningless; speed and parity are real",
            err=True,
        )
    exporter = load("export.exporter")
    options = exporter.Options(
        frame=_size(frame) if frame else config.size,
        output=output,
        precisions=[name.strip() for name in precision.split(",") if name.strip()],
        opset=opset,
        inline_functions=inline_functions,
    )
    with working() as say:
        bundle = exporter.export_bundle(config, path, weights, seed, options, force, say)
    for name, checks in bundle.manifest.parity.items():
        for check in checks:
            typer.echo(
                f"{name} {check['name']}: {check['value']:.3g} "
                f"({check['operator']} {check['threshold']:g})"
            )
    typer.echo(f"wrote {path}")


def _offsets(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise MrcfaError(f"{text!r} are no offsets; write them like 9,6,3") from None


@app.command()
def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a bundle without loading it."""
    from mrcfa.bundle import Bundle
    from mrcfa.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step on a terminal, silence elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield status.update


if __name__ == "__main__":
    main()
