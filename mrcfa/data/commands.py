"""`mrcfa sample`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.arguments import parse_size
from mrcfa.errors import counted


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
    from mrcfa.data.sample import write_sample

    counts = {"train": train, "val": videos, "test": test}
    write_sample(folder, {s: n for s, n in counts.items() if n}, frames, parse_size(size), seed)
    made = counted(sum(counts.values()), "video")
    typer.echo(f"wrote {folder}: {made} with masks, and {folder / 'street.mp4'}")
