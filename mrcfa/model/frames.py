"""Preprocessing of a uint8 frame to normalised input, postprocessing of logits to a mask."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.config import MEAN, STD

Size = tuple[int, int]


class Normalise(nn.Module):
    """Resize and normalise: uint8 (B, h, w, 3) -> (B, 3, H, W).

    Resizing is bilinear with half-pixel centres and without antialiasing.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        pixels = image.to(self.mean.dtype).permute(0, 3, 1, 2)
        return (resize(pixels, self.size) - self.mean) / self.std


class FullSizeMask(nn.Module):
    """Masks at frame size: logits (B, classes, H/4, W/4) -> (B, h, w).

    Logits are resized to H×W, then to the frame's h×w; the argmax comes last.
    """

    def __init__(self, size: Size, frame: Size) -> None:
        super().__init__()
        self.sizes = (size, frame)

    def forward(self, logits: Tensor) -> Tensor:
        return self.resized(logits).argmax(dim=1).to(torch.uint8)

    def resized(self, logits: Tensor) -> Tensor:
        for size in self.sizes:
            logits = resize(logits, size)
        return logits


def network_input(image: NDArray[np.uint8], size: Size) -> Tensor:
    """The model's input (1, 3, H, W) for one frame (h, w, 3)."""
    normalised: Tensor = Normalise(size)(torch.from_numpy(image).unsqueeze(0))
    return normalised.contiguous()


CLASSES_AT_ONCE = 16
"""Classes whose logits are resized at once: all 124 of VSPW at 1088×1920 would take 1 GB."""


def full_size_mask(logits: Tensor, size: Size, frame: Size) -> NDArray[np.uint8]:
    """The mask (h, w) for one frame's logits (1, classes, H/4, W/4).

    It equals `FullSizeMask`, but needs less memory: it compares a few classes at a time with the
    best so far.
    """
    full = FullSizeMask(size, frame)
    best, mask = full.resized(logits[0:1, :CLASSES_AT_ONCE]).max(dim=1)
    for first in range(CLASSES_AT_ONCE, logits.shape[1], CLASSES_AT_ONCE):
        scores, classes = full.resized(logits[0:1, first : first + CLASSES_AT_ONCE]).max(dim=1)
        mask = torch.where(scores > best, classes + first, mask)
        best = torch.maximum(scores, best)
    found: NDArray[np.uint8] = mask[0].to(torch.uint8).cpu().numpy()
    return found


def resize(maps: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """Resize maps (B, C, h, w) bilinearly; return them as they are if the size is right."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)
