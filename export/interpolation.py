"""Bilinear resizing as gathers, products and sums, for compilers for GPUs.

A `Resize` is a kernel of its own and writes all its results to memory. Gathers become part of the
kernel that reads them (docs/algebra.md, lemma 13).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.precision import Wide, widened

Size = tuple[int, int]


class Interpolation(nn.Module):
    """(B, C, h, w) -> (B, C, H, W), at least FP32, resized through all sizes in one step."""

    def __init__(
        self, *sizes: Size, align_corners: bool = False, axes: tuple[int, int] = (2, 3)
    ) -> None:
        super().__init__()
        heights, widths = zip(*sizes, strict=True)
        self.rows = Taps(resizing(heights, align_corners), axes[0])
        self.columns = Taps(resizing(widths, align_corners), axes[1])

    def forward(self, maps: Tensor) -> Tensor:
        columns: Tensor = self.columns(self.rows(maps))
        return columns


class Taps(Wide, nn.Module):
    """A sparse matrix along one of four axes: each output is a sum over few inputs."""

    places: Tensor
    weights: Tensor

    def __init__(self, matrix: Tensor, axis: int) -> None:
        super().__init__()
        self.axis = axis
        outputs, inputs = matrix.shape
        used = matrix != 0
        first = used.int().argmax(dim=1)
        last = inputs - 1 - used.flip(1).int().argmax(dim=1)
        count = int((last - first).max()) + 1
        places = first.clamp(max=inputs - count) + torch.arange(count).unsqueeze(1)
        along = [1] * 4
        along[axis] = outputs
        self.register_buffer("places", places)
        self.register_buffer("weights", matrix.gather(1, places.t()).t().reshape(count, *along))

    def forward(self, maps: Tensor) -> Tensor:
        parts = [widened(inputs) * weights for inputs, weights in self.gathered(maps)]
        return sum(parts[1:], start=parts[0])

    def gathered(self, maps: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The inputs and the weights of each tap."""
        return [
            (maps.index_select(self.axis, places), weights)
            for places, weights in zip(self.places, self.weights, strict=True)
        ]


def resizing(lengths: Sequence[int], align_corners: bool = False) -> Tensor:
    """(last, first) matrix of resizing along one axis through all lengths, in float64."""
    matrix = torch.eye(lengths[0], dtype=torch.float64)
    for length in lengths[1:]:
        matrix = F.interpolate(
            matrix[None], size=length, mode="linear", align_corners=align_corners
        )[0]
    return matrix.t()
