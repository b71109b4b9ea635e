"""`mrcfa run`."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from mrcfa.arguments import parse_names, parse_size
from mrcfa.backends.records import CHOICES
from mrcfa.errors import named
from mrcfa.progress import counting
from mrcfa.video.style import Style, style_for


def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A video, an image, a folder or glob of images, a camera's index, a URL, or -.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="name.mp4, name.npz, a folder of PNGs or -. Default: INPUT.mrcfa.mp4.",
        ),
    ] = None,
    style: Annotated[
        Style | None, typer.Option("--as", help="Default: overlay in MP4, else mask.")
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Opacity of the overlay.")] = 0.5,
    classes: Annotated[str, typer.Option(help="Show only these, such as person,car.")] = "",
    backend: Annotated[str, typer.Option(help=f"One of {named(CHOICES)}.")] = "auto",
    start: Annotated[float, typer.Option(help="Seconds into INPUT to start at.")] = 0,
    end: Annotated[float, typer.Option(help="Seconds into INPUT to stop at.")] = math.inf,
    stride: Annotated[int, typer.Option(help="Take every N-th frame.")] = 1,
    fps: Annotated[float, typer.Option(min=0.01, max=1000, help="Of images and raw frames.")] = 25,
    raw: Annotated[str | None, typer.Option(help="Size of RGB frames on -, WxH.")] = None,
    reset_on_cut: Annotated[
        bool, typer.Option("--reset-on-cut", help="Forget earlier frames at a scene cut.")
    ] = False,
) -> None:
    """Segment a video, images, a camera or a pipe."""
    from mrcfa.stream import Stream
    from mrcfa.video.overlay import Renderer
    from mrcfa.video.segment import segment
    from mrcfa.video.sinks import open_sink, place_for
    from mrcfa.video.sources import Span, open_source

    size = parse_size(raw, "864x480") if raw else None
    frames = open_source(source, Span(start, end, stride), Fraction(str(fps)), size)
    place = place_for(source, out)
    with Stream(bundle, backend) as stream:
        chosen, only = style_for(place, style), parse_names(classes)
        render = Renderer(chosen, stream.classes, stream.palette, alpha, only)
        sink = open_sink(place, stream.classes, stream.palette, frames.rate)
        with sink as write, counting(frames.total) as advance:
            done = segment(frames, stream, render, write, reset_on_cut, advance)
        backend = stream.backend
    typer.echo(
        f"wrote {place}: {done.frames} frames, {done.frames / done.seconds:.1f} frames/s with "
        f"{backend}, which was at work {done.backend_seconds / done.seconds:.0%} of the time",
        err=True,
    )
    if done.interrupted:
        typer.echo("mrcfa: stopped by Ctrl-C; what was written is complete up to there", err=True)
        raise typer.Exit(130)
    if frames.complaint:
        typer.echo(f"mrcfa: {frames.complaint}", err=True)
        raise typer.Exit(1)
