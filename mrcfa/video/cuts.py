"""Detection of scene cuts."""

import numpy as np
from numpy.typing import NDArray

from mrcfa.model.input_format import RGB, InputFormat

CUT_LEVELS = 20
"""Smallest mean change of pixels at a scene cut, in levels of 255."""
CUT_SHARE = 0.3
"""Smallest change of the colour histogram at a scene cut, as a share of the pixels."""


class CutDetector:
    """A detector of scene cuts, given the frames of one video in order."""

    def __init__(self) -> None:
        self._last: NDArray[np.uint8] | None = None

    def begins_scene(self, image: NDArray[np.uint8], form: InputFormat = RGB) -> bool:
        """True if this frame shows another scene than the frame before it."""
        step = max(1, min(form.size(image.shape)) // 64)
        last, self._last = self._last, form.sampled(image, step)
        return last is not None and is_cut(last, self._last)


def is_cut(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> bool:
    """True if two RGB pictures (h, w, 3) show different scenes.

    Camera motion changes pixels but not the colour histogram; a slight change of light does the
    reverse. A cut changes both.
    """
    if before.shape != after.shape:
        return True
    moved = np.abs(before.astype(np.int16) - after).mean()
    recoloured = np.abs(_colours(before) - _colours(after)).sum() / 2
    return bool(moved > CUT_LEVELS and recoloured > CUT_SHARE)


def _colours(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Colour histogram: the share of pixels in each of 4×4×4 colours, (64,)."""
    codes = (image >> 6) @ np.array([16, 4, 1])
    return np.bincount(codes.ravel(), minlength=64) / codes.size
