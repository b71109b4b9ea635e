"""The commands `mrcfa run` and `mrcfa sample`."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.backends.records import CHOICES, check_order
from mrcfa.console.arguments import ADVANCED, parse_names, parse_size, warn_of_swap
from mrcfa.console.notices import warn
from mrcfa.console.progress import counting
from mrcfa.errors import MrcfaError, counted, named
from mrcfa.video.style import Look, Style

if TYPE_CHECKING:
    from mrcfa.video.segment import Tally, Watch


def run(
    bundle: Annotated[
        Path,
        typer.Argument(help="Folder of a bundle, or triton://HOST:PORT/MODEL."),
    ],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Videos, images, folders or globs of images, camera indices, URLs, or - (pipe).",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            metavar="PATH",
            help="Output: NAME.mp4, NAME.npz, a folder of PNGs, - (pipe), or NAME.png for one "
            "image. For several inputs a folder, or a path with {} for their names: masks/{}.npz. "
            "Default: INPUT.mrcfa.mp4 (.png for images); none with --view.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing outputs.")] = False,
    style: Annotated[
        Style | None,
        typer.Option(
            "--as",
            metavar="STYLE",
            help="Style of the output: overlay, mask, color or side-by-side. Default: overlay for "
            "MP4, mask for others.",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="A", help="Opacity of the overlay.")
    ] = 0.5,
    classes: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            show_default=False,
            help="Show only these classes, such as person,car. Default: all.",
        ),
    ] = "",
    view: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Show the result live on a web page; HOST opens it to others, with a token.",
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help=f"Runtime: {named(CHOICES)}.")
    ] = "auto",
    device: Annotated[
        int | None, typer.Option(metavar="N", help="Index of the GPU. Default: the first.")
    ] = None,
    start: Annotated[float, typer.Option(metavar="S", help="Start of the input in seconds.")] = 0,
    end: Annotated[
        float,
        typer.Option(
            metavar="S",
            show_default=False,
            help="End of the input in seconds. Default: its last frame.",
        ),
    ] = math.inf,
    precision: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=ADVANCED,
            metavar="NAME",
            help="Number format. Default: fp32 on CPUs, fp16 on GPUs.",
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            rich_help_panel=ADVANCED,
            metavar="N",
            show_default=False,
            help="CPU threads to use. Default: one per core.",
        ),
    ] = 0,
    legend: Annotated[
        bool,
        typer.Option(
            "--legend/--no-legend",
            rich_help_panel=ADVANCED,
            help="Draw a legend of the classes.",
        ),
    ] = True,
    stride: Annotated[
        int,
        typer.Option(rich_help_panel=ADVANCED, metavar="N", help="Keep one frame in every N."),
    ] = 1,
    fps: Annotated[
        float,
        typer.Option(
            rich_help_panel=ADVANCED,
            min=0.01,
            max=1000,
            metavar="RATE",
            help="Frames per second of images and raw frames.",
        ),
    ] = 25,
    raw: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=ADVANCED,
            metavar="HxW",
            help="Size of raw RGB frames on standard input.",
        ),
    ] = None,
    reset_on_cut: Annotated[
        bool,
        typer.Option(
            "--reset-on-cut",
            rich_help_panel=ADVANCED,
            help="Forget earlier frames at a scene cut.",
        ),
    ] = False,
    every_frame: Annotated[
        bool,
        typer.Option(
            "--every-frame",
            rich_help_panel=ADVANCED,
            help="Segment every frame of cameras and streams, even if latency grows.",
        ),
    ] = False,
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
            from mrcfa.video.view.monitoring import monitored
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
            opened = stack.enter_context(monitored(sources, opened, span, shown.screens))
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
            # Frames of a recording wait for the backend, so their latency means nothing.
            pace = f", {tally.dropped} dropped, {tally.latency}" if source.live else ""
            typer.echo(f"{did}: {counted(tally.frames, 'frame')}{pace}", err=True)
    typer.echo(
        f"{done.frames / done.seconds:.1f} frames/s with {backend}, which was busy "
        f"{done.backend_seconds / done.seconds:.0%} of the time",
        err=True,
    )
    if done.interrupted:
        written = done.frames and None not in places
        complete = "; outputs are complete up to this point" if written else ""
        typer.echo(f"mrcfa: stopped by a signal{complete}", err=True)
        raise typer.Exit(130)
    for complaint in complaints:
        warn(complaint)
    if complaints:
        raise typer.Exit(1)


def _so_far(tallies: "Sequence[Tally]") -> str:
    """Text for the progress bar: drops of all inputs, and latency of the slowest one."""
    slowest = max(tallies, key=lambda tally: tally.latency.percentile_ms(99))
    return f"{sum(tally.dropped for tally in tallies)} dropped, {slowest.latency}"


def sample(
    folder: Annotated[Path, typer.Argument(help="New folder for the dataset.")],
    videos: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of validation videos.")
    ] = 3,
    train: Annotated[int, typer.Option(min=0, metavar="N", help="Number of training videos.")] = 0,
    test: Annotated[int, typer.Option(min=0, metavar="N", help="Number of test videos.")] = 0,
    frames: Annotated[int, typer.Option(min=1, metavar="N", help="Frames per video.")] = 24,
    size: Annotated[str, typer.Option(metavar="HxW", help="Size of the frames.")] = "480x864",
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Random seed; it selects the scenes.")
    ] = 0,
) -> None:
    """Make a dataset of synthetic street scenes with masks, and a test video."""
    from mrcfa.video.sample import write_sample

    counts = {"train": train, "val": videos, "test": test}
    write_sample(folder, {s: n for s, n in counts.items() if n}, frames, parse_size(size), seed)
    made = counted(sum(counts.values()), "video")
    typer.echo(f"wrote {folder}: {made} with masks, and {folder / 'street.mp4'}")
