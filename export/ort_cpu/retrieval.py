"""The end of the decoder with classes on the last axis, from refined affinities to the mask.

On a CPU the plain form costs as much as the encoder: ONNX Runtime walks a softmax or an argmax over
any axis but the last against the grain. `export.ort_cpu.corners` makes the mask faster still.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mrcfa.export.interpolation import Taps, resizing
from mrcfa.model.frames import FullSizeMask, resize
from mrcfa.model.mrcfa import MRCFA


class Retrieved(NamedTuple):
    """Of the tokens so far, at every position."""

    sums: Tensor
    """(1, h·w, C + 1): the values weighted by exponentials, and beside them the exponentials."""
    largest: Tensor | None = None
    """(1, h·w, 1), the largest map, where the exponentials are relative to it."""

    def merged(self, other: "Retrieved") -> "Retrieved":
        """With those of further tokens of the same reference (docs/algebra.md, lemma 16)."""
        if self.largest is None or other.largest is None:
            return Retrieved(self.sums + other.sums)
        most = torch.maximum(other.largest, self.largest)
        old, new = (self.largest - most).exp(), (other.largest - most).exp()
        return Retrieved(self.sums * old + other.sums * new, most)


class LastAxisRetrieval(nn.Module):
    """`export.decoder.Retrieval` with classes last: (1, s, h·w) maps, (1, s, C + 1) values.

    The softmax is exp(x − offset) divided by its sum. A column of ones beside the values makes the
    product with the values compute that sum too (docs/algebra.md, lemma 10). The rows of tokens
    that are padding are zero. Where no offset is known to fit, the largest map takes its place.
    """

    def __init__(self, offset: float | None) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, maps: Tensor, values: Tensor) -> Retrieved:
        if self.offset is not None:
            return Retrieved((maps - self.offset).exp().transpose(1, 2) @ values)
        largest = maps.amax(dim=1, keepdim=True)
        sums = (maps - largest).exp().transpose(1, 2) @ values
        return Retrieved(sums, largest.transpose(1, 2))


class LastAxisScores(nn.Module):
    """(1, C, h, w) base, and what each reference says -> (1, H/4, W/4, C) logits."""

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, found: Sequence[Tensor]) -> Tensor:
        scores = base.permute(0, 2, 3, 1)
        for sums in found:
            scores = scores + (sums[..., :-1] / sums[..., -1:]).view(scores.shape)
        return resize_last_axis(scores, self.quarter)


STRIP = 1 << 17
"""Pixels of a mask of another size that are made at once: 65 MB of scores with 124 classes."""


class LastAxisMask(FullSizeMask):
    """The same mask from logits with classes last.

    At another size than the network's it is made in strips of rows, so that no tensor has a score
    for every pixel: rows are interpolated by gathers, as many as the strip has (docs/algebra.md,
    lemma 13), columns by a resize. At the network's own size corners take its place.
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
    """Logits as the contract wants them, (1, C, H/4, W/4)."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.permute(0, 3, 1, 2)


LARGEST_EXPONENT = 70.0
"""Between minus and plus this exp is normal in FP32, and so is a sum of 10⁸ of them."""


def largest_map_value(model: MRCFA) -> float | None:
    """A bound of the refined affinities, |γ|√n + |β| of the last norm over n positions.

    None where there is no norm (docs/algebra.md, lemma 10).
    """
    norms = [part for part in model.refinement.modules() if isinstance(part, nn.GroupNorm)]
    if not norms:
        return None
    gamma, beta = (each.abs().max().item() for each in (norms[-1].weight, norms[-1].bias))
    return gamma * model.config.tokens_at(model.refinement.strides[-1]) ** 0.5 + beta


def exponent_offset(model: MRCFA) -> float | None:
    """What to subtract from all maps, so that exp stays in FP32's range, if that can be told.

    A constant in place of the maximum of a softmax (docs/algebra.md, lemma 10).
    """
    bound = largest_map_value(model)
    if bound is None or bound > 2 * LARGEST_EXPONENT:
        return None
    return max(0.0, bound - LARGEST_EXPONENT)


def resize_last_axis(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear over axes 1 and 2 of (1, h, w, C), which torch cannot say and ONNX can."""
    shape = (maps.shape[0], *size, maps.shape[3])
    if tuple(maps.shape) == shape:
        return maps
    if not torch.onnx.is_in_onnx_export():
        return resize(maps.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)
    old = np.array(maps.shape, np.float32)
    scales = np.array(shape, np.float32) / old
    # Resize rounds a length down, so a scale that was rounded down would lack a row or column.
    short = np.floor(scales.astype(np.float64) * old) < shape
    scales = np.where(short, np.nextafter(scales, np.float32(np.inf)), scales)
    return torch.onnx.ops.symbolic(
        "Resize",
        (maps, None, torch.tensor(scales.tolist())),
        attrs={"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        dtype=maps.dtype,
        shape=shape,
    )
