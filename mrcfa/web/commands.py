"""`mrcfa web`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.bundle.manifest import Device
from mrcfa.console.notices import warn


def web(
    bundle: Annotated[Path, typer.Argument(help="Folder of a bundle.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder of the site to write, for a static host.")
    ],
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="VIDEO",
            help="Video that the page offers as its sample, in a format of browsers such as MP4 "
            "with H.264. Default: a drawn street.",
        ),
    ] = None,
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tgz",
            help="Archive of onnxruntime-web that was downloaded before. Default: npm gets it.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing site.")] = False,
) -> None:
    """Write a web page that segments videos and the camera in the visitor's browser."""
    from mrcfa.bundle import Bundle
    from mrcfa.web.runtime import runtime_files
    from mrcfa.web.site import browser_variants, check_free, write_site

    opened = Bundle.open(bundle)
    names = browser_variants(opened)
    check_free(out, force)
    if opened.find_variant(Device.GPU, "fp32") is None:
        half = opened.find_variant(Device.GPU, "fp16") is not None
        warn(
            f"{bundle} has no graphs for GPUs{' without 16-bit shaders' if half else ''}, so the "
            "page runs on the CPU there; export it with --variants fp32,fp16,fp32-gpu"
        )
    write_site(opened, out, runtime_files(runtime), sample, force)
    typer.echo(f"wrote {out} with {', '.join(names)}; look at it with:")
    typer.echo(f"python3 -m http.server 8000 --bind 127.0.0.1 --directory {out}")
