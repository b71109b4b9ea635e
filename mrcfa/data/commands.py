"""`mrcfa sample`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.arguments import parse_size


def sample(
    folder: Annotated[Path, typer.Argument(help="A new directory.")],
    videos: Annotated[int, typer.Option(min=1, help="How many videos.")] = 3,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each video.")] = 24,
    size: Annotated[str, typer.Option(help="Of the frames, HxW.")] = "480x864",
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other scenes.")] = 0,
) -> None:
    """Make a small dataset in VSPW's layout, and a video, to try everything without a download."""
    from mrcfa.data.sample import write_sample

    write_sample(folder, videos, frames, parse_size(size), seed)
    typer.echo(f"wrote {folder}: {videos} videos with masks, and {folder / 'street.mp4'}")
