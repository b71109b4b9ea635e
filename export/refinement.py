"""SAR and MAA in the plain decoder: a token's maps side by side, (R, S·C, h, w).

The weights are shared by all tokens, so each conv is one grouped conv over them, and its
GroupNorm(1) is a norm of each token by itself (docs/algebra.md, lemma 6).
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import Affine, affine, fold_affinity_scale
from mrcfa.model.affinity import Refinement


class Step(NamedTuple):
    """conv → GroupNorm(1) → ReLU of the reference model, the conv's weights in float64."""

    conv: Affine
    eps: float
    """In place of the norm's own."""
    norm: nn.GroupNorm


def steps_of(block: nn.Module, channels: int = 1) -> list[Step]:
    """The steps of a block of SAR or MAA, for maps that come divided by √channels.

    The first step takes the factor (docs/algebra.md, lemma 5).
    """
    assert isinstance(block, Refinement)
    steps = []
    for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
        assert isinstance(norm, nn.GroupNorm)
        steps.append(Step(*fold_affinity_scale(affine(conv), norm.eps, channels), norm))
        channels = 1
    return steps


class Refine(nn.Sequential):
    """A block of SAR or MAA, (R, S·C, h, w) -> (R, S·C', h, w)."""

    def __init__(
        self, block: nn.Module, tokens: int, grid: tuple[int, int], channels: int = 1
    ) -> None:
        super().__init__(*(GroupedLayer(step, tokens, grid) for step in steps_of(block, channels)))


class GroupedLayer(nn.Module):
    """One conv → norm → ReLU, (R, S·C, h, w) -> (R, S·C', h, w): a grouped conv over tokens."""

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.conv = repeated_conv(step.conv.weight, tokens)
        self.conv.bias = nn.Parameter(step.conv.bias.repeat(tokens))
        self.norm = TokenNorm(step, tokens, grid)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(self.conv(maps)).relu()


class TokenNorm(nn.Module):
    """GroupNorm(1) of every token's own maps, (R, S·C, h, w), as a LayerNorm over C·h·w.

    Each channel's γ and β are written out over its h·w positions (docs/algebra.md, lemma 6).
    """

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.tokens, positions = tokens, grid[0] * grid[1]
        self.norm = nn.LayerNorm(step.norm.num_channels * positions, eps=step.eps)
        self.norm.weight.data = step.norm.weight.detach().repeat_interleave(positions)
        self.norm.bias.data = step.norm.bias.detach().repeat_interleave(positions)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(maps.reshape(maps.shape[0], self.tokens, -1)).view(maps.shape)


class Affinity(nn.Module):
    """Kept keys (R, S, C) against a grid of queries (1, C, h·w): (R, S, h, w).

    Queries come divided by √C. Without SAR no conv takes the factor, so maps are multiplied by √C
    here (docs/algebra.md, lemma 5).
    """

    def __init__(self, grid: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.grid, self.scale = grid, channels**0.5

    def forward(self, keys: Tensor, queries: Tensor) -> Tensor:
        maps = (keys @ queries).unflatten(2, self.grid)
        return maps if self.scale == 1 else maps * self.scale


def upsampled(maps: Tensor) -> Tensor:
    """Maps at twice the size, bilinear with aligned corners: MAA's step to the next scale."""
    return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=True)


def repeated_conv(weight: Tensor, times: int) -> nn.Conv2d:
    """The same conv for every token: a grouped conv with the weights repeated, without a bias."""
    outputs, inputs, kernel, _ = weight.shape
    conv = nn.Conv2d(
        times * inputs, times * outputs, kernel, padding=kernel // 2, groups=times, bias=False
    )
    conv.weight = nn.Parameter(weight.repeat(times, 1, 1, 1))
    return conv
