"""`mrcfa run`."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.backends.address import check_order
from mrcfa.backends.records import CHOICES
from mrcfa.console.arguments import parse_names, parse_size, warn_of_swap
from mrcfa.console.notices import tell
from mrcfa.console.progress import counting
from mrcfa.errors import MrcfaError, counted, named
from mrcfa.video.style import Look, Style

if TYPE_CHECKING:
    from mrcfa.video.segment import Tally, Watch


def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Videos, images, folders or globs of images, cameras' indices, URLs, or -.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="name.mp4, name.npz, a folder of PNGs, - or, of an image, name.png. Of several "
            "inputs a folder of MP4s, or a place with {} for their names: masks/{}.npz, masks/{}. "
            "Default: INPUT.mrcfa.mp4, of an image .png, with --view nothing.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace outputs that are already there.")
    ] = False,
    style: Annotated[
        Style | None, typer.Option("--as", help="Default: overlay in MP4, else mask.")
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Opacity of the overlay.")] = 0.5,
    classes: Annotated[str, typer.Option(help="Show only these, such as person,car.")] = "",
    legend: Annotated[
        bool, typer.Option("--legend/--no-legend", help="Name the classes in the picture.")
    ] = True,
    backend: Annotated[str, typer.Option(help=f"One of {named(CHOICES)}.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="Default: fp32 on a CPU, fp16 on a GPU.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Of a CPU. Default: all cores.")] = 0,
    device: Annotated[
        int | None, typer.Option(help="Index of the GPU. Default: the first.")
    ] = None,
    start: Annotated[float, typer.Option(help="Seconds into INPUT to start at.")] = 0,
    end: Annotated[float, typer.Option(help="Seconds into INPUT to stop at.")] = math.inf,
    stride: Annotated[int, typer.Option(help="Take every N-th frame.")] = 1,
    fps: Annotated[float, typer.Option(min=0.01, max=1000, help="Of images and raw frames.")] = 25,
    raw: Annotated[str | None, typer.Option(help="Size of RGB frames on -, HxW.")] = None,
    reset_on_cut: Annotated[
        bool, typer.Option("--reset-on-cut", help="Forget earlier frames at a scene cut.")
    ] = False,
    every_frame: Annotated[
        bool, typer.Option("--every-frame", help="Of cameras and streams too, however late.")
    ] = False,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Show it live on a web page: to this machine, or at HOST to who has the token.",
        ),
    ] = None,
) -> None:
    """Segment videos, images, cameras, network streams or a pipe."""
    from mrcfa.video.places import names_for, places_for
    from mrcfa.video.session import open_session
    from mrcfa.video.sources import Span, open_sources

    with ExitStack() as stack:
        check_order("run", bundle, sources)
        listener = None
        if view is not None:
            from mrcfa.video.view.address import listen
            from mrcfa.video.view.follow import following
            from mrcfa.video.view.server import View

            listener = stack.enter_context(closing(listen(view)))
        size, span = parse_size(raw) if raw else None, Span(start, end, stride)
        opened = open_sources(sources, span, Fraction(str(fps)), size)
        nowhere: Sequence[str | None] = [None] * len(sources)
        places = nowhere if listener and out is None else places_for(sources, out, force)
        look = Look(style, alpha, tuple(parse_names(classes)), legend)
        live = any(source.live for source in opened) and not every_frame
        totals = [source.total for source in opened]
        session = stack.enter_context(
            open_session(
                bundle,
                backend,
                len(sources),
                precision=precision,
                threads=threads,
                device=device,
            )
        )
        if size is not None:
            warn_of_swap("--raw", size, session.size, "the bundle's")
        names = names_for(sources)
        watches: list[Watch] = []
        if listener is not None:
            shown = View(listener, names, session.classes, session.palette, look, session.backend)
            opened = stack.enter_context(following(sources, opened, span, shown.screens))
            watches = [screen.show for screen in stack.enter_context(shown).screens]
            typer.echo(f"view: {listener.url}", err=True)
        total = None if None in totals else sum(filter(None, totals))
        advance = stack.enter_context(counting(total))
        done = session.run(
            opened,
            places,
            look,
            reset_on_cut,
            every_frame,
            lambda tallies: advance(note=_so_far(tallies) if live else ""),
            watches,
            force,
        )
        backend = session.backend
    complaints = [tally.complaint for tally in done.tallies if tally.complaint]
    if not done.frames and not done.interrupted:
        raise MrcfaError(complaints[0])
    for source, name, place, tally in zip(opened, names, places, done.tallies, strict=True):
        if tally.frames:
            did = f"showed {name}" if place is None else f"wrote {place}"
            # Frames of a recording all wait for the backend: when one arrived says nothing.
            pace = f", {tally.dropped} dropped, {tally.latency}" if source.live else ""
            typer.echo(f"{did}: {counted(tally.frames, 'frame')}{pace}", err=True)
    typer.echo(
        f"{done.frames / done.seconds:.1f} frames/s with {backend}, which was at work "
        f"{done.backend_seconds / done.seconds:.0%} of the time",
        err=True,
    )
    if done.interrupted:
        written = done.frames and None not in places
        whole = "; what was written is complete up to there" if written else ""
        typer.echo(f"mrcfa: stopped by a signal{whole}", err=True)
        raise typer.Exit(130)
    for complaint in complaints:
        tell(complaint)
    if complaints:
        raise typer.Exit(1)


def _so_far(tallies: "Sequence[Tally]") -> str:
    """For the bar: drops of all inputs, and the latency of the one that has the most of it."""
    slowest = max(tallies, key=lambda tally: tally.latency.percentile_ms(99))
    return f"{sum(tally.dropped for tally in tallies)} dropped, {slowest.latency}"


def sample(
    folder: Annotated[Path, typer.Argument(help="A new directory.")],
    videos: Annotated[int, typer.Option(min=1, help="How many videos to validate on.")] = 3,
    train: Annotated[int, typer.Option(min=0, help="How many to train on.")] = 0,
    test: Annotated[int, typer.Option(min=0, help="How many to test on.")] = 0,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each video.")] = 24,
    size: Annotated[str, typer.Option(help="Of the frames, HxW.")] = "480x864",
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other scenes.")] = 0,
) -> None:
    """Make a dataset of street scenes with exact masks, and a video, without a download."""
    from mrcfa.video.sample import write_sample

    counts = {"train": train, "val": videos, "test": test}
    write_sample(folder, {s: n for s, n in counts.items() if n}, frames, parse_size(size), seed)
    made = counted(sum(counts.values()), "video")
    typer.echo(f"wrote {folder}: {made} with masks, and {folder / 'street.mp4'}")
