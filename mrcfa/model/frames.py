"""Pre- and postprocessing: uint8 frame -> normalised input, logits -> full-size mask."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.config import MEAN, STD

Size = tuple[int, int]


class Normalise(nn.Module):
    """uint8 (B, h, w, 3) -> normalised (B, 3, H, W): bilinear, half-pixel, no antialias."""

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
    """(B, classes, H/4, W/4) logits -> H×W -> the frame's own size, and only then the argmax."""

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
    """One frame (h, w, 3) as the model takes it, (1, 3, H, W)."""
    normalised: Tensor = Normalise(size)(torch.from_numpy(image).unsqueeze(0))
    return normalised.contiguous()


CLASSES_AT_ONCE = 16
"""Of full-size logits: at 1088×1920 all 124 of VSPW would take 1 GB."""


def full_size_mask(logits: Tensor, size: Size, frame: Size) -> NDArray[np.uint8]:
    """The mask (h, w) of one frame's logits (1, classes, H/4, W/4).

    What `FullSizeMask` computes, a few classes at a time, with the best so far.
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
    """Bilinear, or nothing where the size is right already."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)
