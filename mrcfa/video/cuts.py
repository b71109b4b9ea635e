"""Where one scene of a video ends and another begins."""

import numpy as np
from numpy.typing import NDArray

CUT_LEVELS = 20
"""By how many of 255 levels pixels change at a scene cut, on average."""
CUT_SHARE = 0.3
"""Which share of the pixels has other colours after a scene cut."""


class Cuts:
    """Looks at the frames of one video in order."""

    def __init__(self) -> None:
        self._last: NDArray[np.uint8] | None = None

    def begins_scene(self, image: NDArray[np.uint8]) -> bool:
        """Whether this frame, (h, w, 3), is of another scene than the one before it."""
        step = max(1, min(image.shape[:2]) // 64)
        last, self._last = self._last, image[::step, ::step].copy()
        return last is not None and is_cut(last, self._last)


def is_cut(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> bool:
    """Whether two RGB pictures (h, w, 3) are of different scenes.

    Colours keep their shares when the camera moves, and pixels their values when the light
    changes a little: at a cut both break at once.
    """
    if before.shape != after.shape:
        return True
    moved = np.abs(before.astype(np.int16) - after).mean()
    recoloured = np.abs(_colours(before) - _colours(after)).sum() / 2
    return bool(moved > CUT_LEVELS and recoloured > CUT_SHARE)


def _colours(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The share of pixels in each of 4×4×4 colours."""
    codes = (image >> 6) @ np.array([16, 4, 1])
    return np.bincount(codes.ravel(), minlength=64) / codes.size
