"""The decoder from refined affinities to the mask, with classes on the last axis.

On a CPU the plain form costs as much as the encoder, because ONNX Runtime reads memory in strides
for a softmax or an argmax over any axis but the last. `export.ort_cpu.corners` replaces the mask by
a faster one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mrcfa.export.interpolation import Taps, resizing
from mrcfa.model.frames import FullSizeMask, resize
from mrcfa.model.mrcfa import MRCFA


class LastAxisSoftmax(NamedTuple):
    """A softmax over the tokens so far, at every position (docs/algebra.md, lemma 16)."""

    sums: Tensor
    """(1, h·w, C + 1), sums of the values weighted by exponentials, then of the exponentials."""
    maximum: Tensor | None = None
    """(1, h·w, 1), the largest map that the exponentials are relative to; None: a constant."""

    def merged(self, other: "LastAxisSoftmax") -> "LastAxisSoftmax":
        if self.maximum is None or other.maximum is None:
            return LastAxisSoftmax(self.sums + other.sums)
        maximum = torch.maximum(other.maximum, self.maximum)
        old, new = (self.maximum - maximum).exp(), (other.maximum - maximum).exp()
        return LastAxisSoftmax(self.sums * old + other.sums * new, maximum)

    def before(self, keys: Tensor) -> Tensor:
        """The keys as they are: ONNX Runtime computes one node after the other."""
        return keys


class LastAxisRetrieval(nn.Module):
    """(1, s, h·w) maps, (1, s, C + 1) values -> the tensors of `LastAxisSoftmax`.

    The softmax is exp(x − offset) divided by its sum. A column of ones beside the values makes the
    product compute that sum too, and padding tokens have zeros there (docs/algebra.md, lemma 10).
    Without an offset the largest map is subtracted.
    """

    def __init__(self, offset: float | None) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, maps: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        if self.offset is not None:
            return ((maps - self.offset).exp().transpose(1, 2) @ values,)
        maximum = maps.amax(dim=1, keepdim=True)
        sums = (maps - maximum).exp().transpose(1, 2) @ values
        return sums, maximum.transpose(1, 2)


class LastAxisScores(nn.Module):
    """(1, C, h, w) base and its references' softmaxes -> (1, H/4, W/4, C) logits."""

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, softmaxes: Sequence[LastAxisSoftmax]) -> Tensor:
        scores = base.permute(0, 2, 3, 1)
        for softmax in softmaxes:
            sums = softmax.sums
            scores = scores + (sums[..., :-1] / sums[..., -1:]).view(scores.shape)
        return resize_last_axis(scores, self.quarter)


STRIP = 1 << 17
"""Pixels computed at once in a mask that is resized: 65 MB of scores with 124 classes."""


class LastAxisMask(FullSizeMask):
    """`FullSizeMask` from logits with classes last, (1, H/4, W/4, C).

    A frame of another size than the network's is computed in strips of rows, so that no tensor has
    a score for every pixel: gathers interpolate the rows of a strip (docs/algebra.md, lemma 13), a
    resize the columns. At the network's own size `with_corner_mask` replaces this mask.
    """

    def __init__(self, size: tuple[int, int], frame: tuple[int, int]) -> None:
        super().__init__(size, frame)
        matrix = resizing((size[0] // 4, size[0], frame[0]))
        parts = matrix.chunk(-(-frame[0] * frame[1] // STRIP)) if size != frame else ()
        self.rows = nn.ModuleList(Taps(part, axis=1) for part in parts)

    def forward(self, logits: Tensor) -> Tensor:
        if not self.rows:
            return self._leading(resize_last_axis(logits, self.sizes[0]))
        strips = []
        for rows in self.rows:
            scores = rows(logits)
            for _, width in self.sizes:
                scores = resize_last_axis(scores, (scores.shape[1], width))
            strips.append(self._leading(scores))
        return torch.cat(strips, dim=1)

    def _leading(self, scores: Tensor) -> Tensor:
        return scores.argmax(dim=3).to(torch.uint8)


class ClassesFirst(nn.Module):
    """Logits (1, H/4, W/4, C) -> (1, C, H/4, W/4), as docs/bundle.md has them."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.permute(0, 3, 1, 2)


LARGEST_EXPONENT = 70.0
"""exp is a normal FP32 number between minus and plus this, and so is a sum of 10⁸ of them."""


def exponent_offset(model: MRCFA) -> float | None:
    """A constant to subtract from all maps, so that exp stays in FP32's range.

    It replaces the maximum of a softmax. Refined affinities are at most |γ|√n + |β| of the last
    norm over n positions. None if this is too large, or without a norm (docs/algebra.md, lemma 10).
    """
    norms = [part for part in model.refinement.modules() if isinstance(part, nn.GroupNorm)]
    if not norms:
        return None
    gamma, beta = (weight.abs().max().item() for weight in (norms[-1].weight, norms[-1].bias))
    bound = gamma * model.config.tokens_at(model.refinement.strides[-1]) ** 0.5 + beta
    return None if bound > 2 * LARGEST_EXPONENT else max(0.0, bound - LARGEST_EXPONENT)


def resize_last_axis(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear resize over axes 1 and 2 of (1, h, w, C), which ONNX has and torch does not."""
    shape = (maps.shape[0], *size, maps.shape[3])
    if tuple(maps.shape) == shape:
        return maps
    if not torch.onnx.is_in_onnx_export():
        return resize(maps.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)
    old = np.array(maps.shape, np.float32)
    scales = np.array(shape, np.float32) / old
    # Resize rounds a length down: with a scale that was rounded down, a row would be missing.
    short = np.floor(scales.astype(np.float64) * old) < shape
    scales = np.where(short, np.nextafter(scales, np.float32(np.inf)), scales)
    return torch.onnx.ops.symbolic(
        "Resize",
        (maps, None, torch.tensor(scales.tolist())),
        attrs={"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        dtype=maps.dtype,
        shape=shape,
    )
