"""The pictures that a benchmark shows to every backend: a file's, or the sample world's."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.data.world.scene import scene
from mrcfa.errors import InvalidValue
from mrcfa.machine.extras import load
from mrcfa.video.sample import FIRST_SEED
from mrcfa.video.sources import open_source

LOOP = 30
"""Frames that are played over and over. It divides 90 and 990, so that frames 10, 100 and 1000 of
a looped clip, and all that came shortly before them, are the same pictures."""

Images = list[NDArray[np.uint8]]


def benchmark_clip(bundle: Bundle, video: Path | None, frames: int) -> Images:
    """At least `LOOP` images of the bundle's frame size; `frames` of them if the video has as many.

    Resizing happens here, before any clock runs: a benchmark measures the bundle's own boundary.
    """
    size = bundle.manifest.frame
    if video is None:
        return [image for image, _ in scene(LOOP, size, FIRST_SEED["test"])]
    source = open_source(str(video))
    images = [_fitted(frame.image, size) for frame in islice(source, max(frames, LOOP))]
    if len(images) < LOOP:
        reason = f" ({source.complaint})" if source.complaint else ""
        raise InvalidValue(
            f"{video} has {len(images)} frames{reason}; a benchmark needs {LOOP}, "
            "or none at all: without --video it makes its own"
        )
    return images


def looped(images: Images, count: int) -> Iterator[NDArray[np.uint8]]:
    """The images from the first on, and again, `count` in all."""
    return (images[number % len(images)] for number in range(count))


def _fitted(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if image.shape[:2] == size:
        return image
    pillow = load("PIL.Image")
    shrunk = pillow.fromarray(image).resize((size[1], size[0]), pillow.Resampling.BILINEAR)
    return np.array(shrunk)
