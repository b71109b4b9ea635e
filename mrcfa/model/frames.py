"""Preprocessing of a uint8 frame to normalised input, postprocessing of logits to a mask."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.config import MEAN, STD
from mrcfa.model.input_format import UNIT, InputFormat, Layout

Size = tuple[int, int]


class Normalise(nn.Module):
    """Resize and normalise: uint8 RGB (B, h, w, 3) -> (B, 3, H, W).

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
        return (resize(self.pixels(image), self.size) - self.mean) / self.std

    def pixels(self, image: Tensor) -> Tensor:
        """RGB (B, 3, h, w), from 0 to 255."""
        return image.to(self.mean.dtype).permute(0, 3, 1, 2)


class NormaliseBgr(Normalise):
    """`Normalise` for uint8 BGR (B, h, w, 3)."""

    order: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.register_buffer("order", torch.tensor([2, 1, 0]))

    def pixels(self, image: Tensor) -> Tensor:
        return super().pixels(image).index_select(1, self.order)


class NormaliseNv12(Normalise):
    """`Normalise` for uint8 NV12 (B, h·3/2, w), whose pixels equal those of `to_rgb`."""

    def __init__(self, size: Size, form: InputFormat) -> None:
        super().__init__(size)
        self.formula = YuvToRgb(form)

    def pixels(self, image: Tensor) -> Tensor:
        height = image.shape[1] * 2 // 3
        values = image.to(self.mean.dtype)
        chroma = values[:, height:].unflatten(2, (-1, 2)).permute(3, 0, 1, 2).unsqueeze(2)
        colour = F.interpolate(self.formula.colour(*chroma), scale_factor=2.0, mode="nearest")
        return self.formula.rgb(values[:, :height].unsqueeze(1), colour)


class YuvToRgb(nn.Module):
    """The formula of `InputFormat`. Its numbers are exact in FP32, in any order of the sums."""

    luma: Tensor
    u: Tensor
    v: Tensor
    offset: Tensor

    def __init__(self, form: InputFormat) -> None:
        super().__init__()
        for name, weights in form.rgb_weights._asdict().items():
            exact = torch.tensor(weights, dtype=torch.float32) / UNIT
            self.register_buffer(name, exact.view(1, -1, 1, 1))

    def colour(self, u: Tensor, v: Tensor) -> Tensor:
        """U and V (B, 1, h, w) -> what they add to red, green and blue (B, 3, h, w)."""
        return u * self.u + v * self.v + self.offset

    def rgb(self, luma: Tensor, colour: Tensor) -> Tensor:
        """Y (B, 1, h, w) and that -> RGB, rounded and clipped as bytes are."""
        return (luma * self.luma + colour).floor().clamp(0, 255)


def normaliser(size: Size, form: InputFormat) -> Normalise:
    """The `Normalise` for frames of this format."""
    if form.layout is Layout.NV12:
        return NormaliseNv12(size, form)
    return (NormaliseBgr if form.layout is Layout.BGR else Normalise)(size)


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
    """The model's input (1, 3, H, W) for one RGB frame (h, w, 3)."""
    image = np.ascontiguousarray(image)  # PyTorch takes no views that run backwards
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
