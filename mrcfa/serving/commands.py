"""`mrcfa triton`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.backends.records import CHOICES
from mrcfa.bundle.manifest import Device
from mrcfa.console.arguments import advanced
from mrcfa.errors import named
from mrcfa.serving.repository import Platform, ServingOptions, write_repository


def triton(
    bundles: Annotated[
        list[Path], typer.Argument(metavar="BUNDLE...", help="Directories of the bundles to serve.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory of the repository to write.")],
    platform: Annotated[
        Platform,
        typer.Option(
            help="Triton backend that runs the models: onnxruntime or tensorrt run the graphs, "
            "python runs mrcfa itself with any of its backends."
        ),
    ] = Platform.ONNXRUNTIME,
    device: Annotated[
        Device | None,
        typer.Option(
            help="Device of the server. Default: gpu if this machine has a GPU, else cpu."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Precision of the graphs. Default: fp32 on CPUs, fp16 on GPUs."),
    ] = None,
    sequences: Annotated[
        int, typer.Option(help="Number of cameras that one instance holds at once.")
    ] = 32,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing repository.")] = False,
    instances: Annotated[int, advanced(help="Number of copies of each model, on each GPU.")] = 1,
    idle: Annotated[
        float, advanced(help="Seconds without a frame after which a sequence ends.")
    ] = 10,
    backend: Annotated[
        str, advanced(help=f"Backend of mrcfa that --platform python uses: {named(CHOICES)}.")
    ] = "auto",
    threads: Annotated[
        int, advanced(help="CPU threads of an instance on a CPU; 0 means all cores.")
    ] = 0,
) -> None:
    """Write a model repository that NVIDIA Triton serves with --model-repository."""
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
