"""`mrcfa triton`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.backends.records import CHOICES
from mrcfa.bundle.manifest import Device
from mrcfa.errors import named
from mrcfa.serving.repository import Platform, ServingOptions, write_repository


def triton(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="What to serve.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The repository's directory.")],
    platform: Annotated[
        Platform, typer.Option(help="What runs in the server; python takes any backend.")
    ] = Platform.ONNXRUNTIME,
    device: Annotated[
        Device | None, typer.Option(help="Default: a GPU where this machine has one, else the CPU.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of the graphs. Default: fp32 on CPUs, fp16 on GPUs.")
    ] = None,
    instances: Annotated[int, typer.Option(help="Copies of a model, on each GPU.")] = 1,
    sequences: Annotated[int, typer.Option(help="Cameras that an instance holds at once.")] = 32,
    idle: Annotated[float, typer.Option(help="Seconds without a frame that end a sequence.")] = 10,
    backend: Annotated[
        str, typer.Option(help=f"With --platform python: one of {named(CHOICES)}.")
    ] = "auto",
    threads: Annotated[int, typer.Option(help="Of an instance on CPUs. Default: all cores.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing repository.")] = False,
) -> None:
    """Write a model repository for NVIDIA Triton: tritonserver --model-repository=REPOSITORY."""
    from mrcfa.bundle import Bundle
    from mrcfa.machine.hardware import gpus

    options = ServingOptions(
        platform=platform,
        device=device or (Device.GPU if gpus() else Device.CPU),
        precision=precision,
        instances=instances,
        sequences=sequences,
        idle_s=idle,
        backend=backend,
        threads=threads,
    )
    opened = [Bundle.open(path) for path in bundles]
    names = write_repository(opened, out, options, force)
    for name in names:
        typer.echo(f"wrote {out}: triton://HOST:8001/{name} on the {options.device.value.upper()}")
