"""The end of the decoder, from refined affinities to the answer, once for GPUs and once for CPUs.

Both compute the same: the softmax of each reference's token weights, times their values, plus the
frame's own scores; then logits at 1/4, and for a mask their bilinear resize to H×W, to the frame's
size, and the argmax. GPUs want it plainly. On a CPU the plain form costs as much as the encoder:
ONNX Runtime walks a softmax or an argmax over any axis but the last against the grain, so there the
classes are the last axis and the softmax is not normalised until its sum is known. `export.corners`
has a third end, that no GPU takes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.precision import widely
from mrcfa.affinity import AffinityRefinement


class Retrieval(nn.Module):
    """(1, C, h, w) base, (R, S, h·w) maps, (R, S, C) values -> (1, C, H/4, W/4) logits.

    Σ over references and tokens is one product, (C, R·S) × (R·S, h·w).
    """

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, refined: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        (maps,), (tokens,) = refined, values
        weights = widely(lambda x: x.softmax(dim=1), maps).flatten(0, 1)
        scores = base + (tokens.flatten(0, 1).t() @ weights).view_as(base)
        return resize(scores, self.quarter)


class Mask(nn.Module):
    """Logits at 1/4 -> H×W -> the frame's own size, and only then the argmax."""

    def __init__(self, size: tuple[int, int], frame: tuple[int, int]) -> None:
        super().__init__()
        self.sizes = (size, frame)

    def forward(self, logits: Tensor) -> Tensor:
        for size in self.sizes:
            logits = resize(logits, size)
        return logits.argmax(dim=1).to(torch.uint8)


class LastAxisRetrieval(nn.Module):
    """The same with classes last, (1, H/4, W/4, C), and the softmax's division after the product.

    With E = exp(x − c), the retrieved scores are (EᵀV) / (Eᵀ1) whatever c is, so a column of ones
    beside V sums the exponentials in the product itself. c must keep E inside FP32's range for any
    x in [0, bound]; `shift_for` finds it. Tokens after the `kept` first count for nothing.
    """

    counted: Tensor

    def __init__(self, quarter: tuple[int, int], shift: float, kept: int, tokens: int) -> None:
        super().__init__()
        self.quarter, self.shift = quarter, shift
        self.register_buffer("counted", (torch.arange(tokens) < kept).float().view(1, tokens, 1))

    def forward(self, base: Tensor, refined: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        scores = base.permute(0, 2, 3, 1)
        for maps, tokens in zip(refined, values, strict=True):
            exponentials = (maps - self.shift).exp().transpose(1, 2)
            sums = exponentials @ (F.pad(tokens, (0, 1), value=1.0) * self.counted)
            scores = scores + (sums[..., :-1] / sums[..., -1:]).view(scores.shape)
        return resize_last_axis(scores, self.quarter)


class LastAxisMask(Mask):
    """The same mask from logits with classes last, strip by strip where one resize is enough.

    Full-size logits of 124 classes are 200 MB at 480×864. An output row needs the source rows just
    above and below it, so a strip with one more source row on either side, resized and cropped, is
    exactly that strip of the whole.
    """

    def forward(self, logits: Tensor) -> Tensor:
        size, frame = self.sizes
        if size == frame:
            strips = [self._strip(logits, top) for top in range(0, logits.shape[1], STRIP)]
            return torch.cat(strips, dim=1).to(torch.uint8)
        full = resize_last_axis(resize_last_axis(logits, size), frame)
        return full.argmax(dim=3).to(torch.uint8)

    def _strip(self, logits: Tensor, top: int) -> Tensor:
        bottom = min(top + STRIP, logits.shape[1])
        above, below = max(top - 1, 0), min(bottom + 1, logits.shape[1])
        size = self.sizes[0]
        scale = size[0] // logits.shape[1]
        rows = resize_last_axis(logits[:, above:below], ((below - above) * scale, size[1]))
        start = (top - above) * scale
        return rows.argmax(dim=3)[:, start : start + (bottom - top) * scale]


class ClassesFirst(nn.Module):
    """Logits as the contract wants them, (1, C, H/4, W/4)."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.permute(0, 3, 1, 2)


STRIP = 20
"""Rows of logits at 1/4 that are brought to full size at once."""

LARGEST_EXPONENT = 80.0
"""Between minus and plus this, exp is finite, normal and summable in FP32."""


def shift_for(refinement: AffinityRefinement, positions: int) -> float | None:
    """c for maps whose last norm ran over `positions`, or None where FP32 cannot hold them all.

    A normalised value is at most √(n − 1) and its ReLU at least 0, so x lies in [0, |γ|√n + |β|].
    """
    norms = [module for module in refinement.modules() if isinstance(module, nn.GroupNorm)]
    if not norms:
        return None
    last = norms[-1]
    bound = last.weight.abs().max().item() * positions**0.5 + last.bias.abs().max().item()
    shift = max(0.0, bound - LARGEST_EXPONENT)
    return shift if shift <= LARGEST_EXPONENT else None


def resize(maps: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """Bilinear, or nothing where the size is right already."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)


def resize_last_axis(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear over axes 1 and 2 of (1, h, w, C), which torch cannot say and ONNX can."""
    shape = (maps.shape[0], *size, maps.shape[3])
    if tuple(maps.shape) == shape:
        return maps
    if not torch.onnx.is_in_onnx_export():
        return resize(maps.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)
    scales = torch.tensor([new / old for new, old in zip(shape, maps.shape, strict=True)])
    return torch.onnx.ops.symbolic(
        "Resize",
        (maps, None, scales.float()),
        attrs={"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        dtype=maps.dtype,
        shape=shape,
    )
