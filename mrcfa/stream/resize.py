"""Masks from logits in NumPy, for bundles whose graphs end with logits."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def mask_of_logits(
    logits: NDArray[np.floating], size: tuple[int, int], frame: tuple[int, int]
) -> NDArray[np.uint8]:
    """(classes, h, w) -> uint8 mask (frame): resize to `size`, then to `frame`, then argmax.

    The classes are resized one by one, so memory stays at a few frames for any number of classes.
    """
    best = np.full(frame, -np.inf, np.float32)
    mask = np.zeros(frame, np.uint8)
    for index, scores in enumerate(logits.astype(np.float32)):
        full = bilinear(bilinear(scores, size), frame)
        ahead = full > best
        best[ahead] = full[ahead]
        mask[ahead] = index
    return mask


def bilinear(image: Floats, size: tuple[int, int]) -> Floats:
    """(h, w) -> (size), with half-pixel centres and clamped edges, as in the graphs."""
    if image.shape == size:
        return image
    for axis, length in enumerate(size):
        image = _along(image, axis, length)
    return image


def _along(image: Floats, axis: int, length: int) -> Floats:
    source = image.shape[axis]
    position = np.maximum((np.arange(length) + 0.5) * (source / length) - 0.5, 0)
    low = np.minimum(position.astype(np.intp), source - 1)
    high = np.minimum(low + 1, source - 1)
    weight = (position - low).astype(np.float32)
    weight = weight[:, None] if axis == 0 else weight
    return image.take(low, axis) * (1 - weight) + image.take(high, axis) * weight
