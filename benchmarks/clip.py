"""The input images of a benchmark: frames of a video file, or of the sample world."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.data.world.scene import scene
from mrcfa.errors import InvalidValue
from mrcfa.stream.segmenter import scaled
from mrcfa.video.sample import FIRST_SEED
from mrcfa.video.sources import open_source

LOOP = 30
"""Frames in a looped clip. The number divides 90 and 990, so frames 10, 100 and 1000 of a looped
clip show the same image, and so do the frames shortly before them."""

Images = list[NDArray[np.uint8]]


def benchmark_clip(bundle: Bundle, video: Path | None, frames: int) -> Images:
    """`frames` frames of the bundle's size and format, fewer if the video is shorter.

    There are at least `LOOP`. They are resized and converted here, before timing starts, so that
    only the bundle's own work is measured.
    """
    size, form = bundle.manifest.frame, bundle.manifest.input
    if video is None:
        return [form.from_rgb(image) for image, _ in scene(LOOP, size, FIRST_SEED["test"])]
    source = open_source(str(video))
    shown = islice(source, max(frames, LOOP))
    images = [form.from_rgb(_fitted(frame.image, size)) for frame in shown]
    if len(images) < LOOP:
        reason = f" ({source.complaint})" if source.complaint else ""
        raise InvalidValue(
            f"{video} has {len(images)} frames{reason}; a benchmark needs {LOOP}, so use a longer "
            "video, or leave --video out for the built-in clip"
        )
    return images


def looped(images: Images, count: int) -> Iterator[NDArray[np.uint8]]:
    """`count` images: the given ones in order, repeated as often as needed."""
    return (images[number % len(images)] for number in range(count))


def _fitted(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if image.shape[:2] == size:
        return image
    return np.array(scaled(image, size, "BILINEAR"))
