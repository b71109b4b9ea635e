"""Footage for calibration: streams of frames from a dataset or any video."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.console.addresses import without_secrets
from mrcfa.data.datasets import is_dataset, labelled_videos
from mrcfa.data.frames import Classes, labelled_frames
from mrcfa.errors import InvalidValue
from mrcfa.stream.segmenter import scaled
from mrcfa.video.sources import Source, open_source

STREAM = 16
"""Frames of a stream, if the data has more. Several short streams show more than one long one."""
BEYOND_MEMORY = 3
"""The fewest frames that a stream has after its memory is full."""


@dataclass(frozen=True)
class FootageFrame:
    """A frame, with the classes of its pixels if the data has them."""

    image: NDArray[np.uint8]
    """Frames of the bundle's size and in its format."""
    truth: Classes | None


@dataclass(frozen=True)
class Footage:
    name: str
    streams: tuple[tuple[FootageFrame, ...], ...]

    @property
    def frames(self) -> int:
        return sum(map(len, self.streams))

    @property
    def labelled(self) -> bool:
        return any(frame.truth is not None for stream in self.streams for frame in stream)


def footage(data: str, split: str | None, frames: int, bundle: Bundle) -> Footage:
    """At most `frames` frames, in streams long enough to fill the memory."""
    shortest = bundle.config.depth + BEYOND_MEMORY
    if frames < shortest:
        raise InvalidValue(
            f"--frames is {frames}, but the memory holds {bundle.config.depth} frames and has to "
            f"be full: use {shortest} or more"
        )
    count = max(1, frames // max(STREAM, shortest))
    if is_dataset(Path(data)):
        found: Iterable[list[FootageFrame]] = _of_dataset(Path(data), split, frames, count, bundle)
    else:
        found = _of_video(open_source(data), frames, count)
    size = bundle.manifest.frame
    streams = [tuple(_fitted(frame, size) for frame in stream) for stream in found]
    streams = [stream for stream in streams if len(stream) >= shortest]
    if not streams:
        raise InvalidValue(
            f"{data} has no video of {shortest} frames: the memory holds {bundle.config.depth}, "
            "and a calibration has to see it full"
        )
    _refuse_still(streams, data)
    form = bundle.manifest.input
    streams = [
        tuple(replace(frame, image=form.from_rgb(frame.image)) for frame in stream)
        for stream in streams
    ]
    return Footage(Path(without_secrets(data)).name or data, tuple(streams))


def _of_dataset(
    root: Path, split: str | None, frames: int, count: int, bundle: Bundle
) -> Iterator[list[FootageFrame]]:
    """The first frames of videos from all over the split: `train`, or `val` without that."""
    lacking = (root / "val.txt").is_file() and not (root / "train.txt").is_file()
    usual = "val" if lacking else "train"
    videos = labelled_videos(root, split or usual, bundle.config.depth)
    videos.check_classes(bundle.path, bundle.manifest.classes)
    count = min(count, len(videos.clips))
    for number in range(count):
        clip = videos.clips[number * len(videos.clips) // count]
        shown = islice(labelled_frames(videos, clip), frames // count)
        yield [FootageFrame(image, truth) for image, truth in shown]


def _of_video(source: Source, frames: int, count: int) -> Iterable[list[FootageFrame]]:
    """Parts from all over a video, or its beginning if its length is not known."""
    total = source.total or 0
    count = max(1, min(count, total * count // frames))
    length = frames // count
    starts = [number * max(0, total - length) // max(1, count - 1) for number in range(count)]
    streams: list[list[FootageFrame]] = [[] for _ in starts]
    last = starts[-1] + length
    for number, frame in enumerate(islice(source, last)):
        for start, stream in zip(starts, streams, strict=True):
            if start <= number < start + length:
                stream.append(FootageFrame(frame.image, None))
    return streams


def _fitted(shown: FootageFrame, size: tuple[int, int]) -> FootageFrame:
    if shown.image.shape[:2] == size:
        return shown
    truth = None if shown.truth is None else scaled(shown.truth, size)
    return FootageFrame(scaled(shown.image, size, "BILINEAR"), truth)


def _refuse_still(streams: Iterable[Sequence[FootageFrame]], data: str) -> None:
    images = [frame.image for stream in streams for frame in stream]
    if all(np.array_equal(image, images[0]) for image in images[1:]):
        flat = bool((images[0] == images[0][:1, :1]).all())
        what = "one colour, and nothing else" if flat else "the same picture in every frame"
        raise InvalidValue(
            f"{data} shows {what}, so no range can be measured on it; give a video like those that "
            "the bundle is for"
        )


def images_of(stream: Sequence[FootageFrame]) -> list[NDArray[np.uint8]]:
    return [frame.image for frame in stream]
