"""The frames of a labelled video, with their ground truth."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.dataset import Clip, LabelledVideos
from mrcfa.data.images import read_image
from mrcfa.errors import Mismatch

Classes = NDArray[np.uint8]


def labelled_frames(
    videos: LabelledVideos, clip: Clip
) -> Iterator[tuple[NDArray[np.uint8], Classes | None]]:
    """Images (h, w, 3) with their truth (h, w), or None for frames without a mask."""
    return (labelled_frame(videos, clip, path) for path in clip.images)


def labelled_frame(
    videos: LabelledVideos, clip: Clip, path: Path
) -> tuple[NDArray[np.uint8], Classes | None]:
    """One image of a clip with its truth."""
    image = read_image(path)
    mask = clip.masks.get(path)
    truth = None if mask is None else videos.truth(mask)
    if truth is not None and truth.shape != image.shape[:2]:
        sizes = (f"{height}×{width}" for height, width in (truth.shape, image.shape[:2]))
        raise Mismatch(
            "the mask {} is {}, but its frame is {}; make them equal in size".format(mask, *sizes)
        )
    return image, truth
