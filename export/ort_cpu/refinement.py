"""SAR and MAA in ONNX Runtime's blocked layout: each of a token's C maps has its own tensor.

ONNX Runtime is several times as fast at convs, resizes and averages in a layout of its own, blocks
of channels. A grouped conv stays in it only with one channel for each group, and a norm has to
leave it. So a token's maps are C tensors (R, S, h, w), each conv is depthwise, and a norm over
several maps is made of averages and a sum (docs/algebra.md, lemma 8).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.refinement import SAR, RepeatedConv, Step, upsampled

SMALLEST_GAMMA = 1e-9
"""Replaces a γ of zero, because `SplitNorm` divides by γ."""


class Maps(NamedTuple):
    """C tensors (R, S, h, w), still to be divided by their token's standard deviation."""

    tensors: Sequence[Tensor]
    deviation: Tensor | None = None
    """(R, S), or None if there is nothing left to divide by."""

    def divided(self) -> Sequence[Tensor]:
        if self.deviation is None:
            return self.tensors
        return [tensor / self.deviation[..., None, None] for tensor in self.tensors]


def new_sar(steps: Sequence[Step], tokens: int, grid: tuple[int, int]) -> SAR:
    first, *rest = steps
    norm = _norm(first, tokens, grid)
    return SAR(_scaled_weight(first, norm), norm, *layers(rest, tokens, grid))


def layers(steps: Sequence[Step], tokens: int, grid: tuple[int, int]) -> Iterator[nn.Module]:
    return (SplitLayer(step, tokens, grid) for step in steps)


class SplitLayer(nn.Module):
    """conv → norm → ReLU, the conv as sums of depthwise convs (docs/algebra.md, lemma 6)."""

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.norm = _norm(step, tokens, grid)
        self.convs = nn.ModuleList(
            nn.ModuleList(RepeatedConv(kernel[None, None], tokens) for kernel in kernels)
            for kernels in _scaled_weight(step, self.norm)
        )

    def forward(self, maps: Maps) -> Maps:
        convolved: list[Tensor] = []
        for convs in self.convs:
            assert isinstance(convs, nn.ModuleList)
            parts = [conv(tensor) for conv, tensor in zip(convs, maps.tensors, strict=True)]
            convolved.append(sum(parts[1:], start=parts[0]))
        return self.norm(Maps(convolved, maps.deviation))


class SplitMAA(nn.Module):
    """One step of MAA: upsamples the coarser maps, adds the finer ones and refines the sum."""

    def __init__(self, refine: nn.Module) -> None:
        super().__init__()
        self.refine = refine

    def forward(self, coarser: Maps, maps: Maps) -> Maps:
        upper = [upsampled(tensor) for tensor in _with_deviation_of(maps, coarser)]
        added = list(maps.tensors)
        if len(added) < len(upper):  # without SAR one raw map is added to every channel
            added *= len(upper)
        sums = [one + other for one, other in zip(upper, added, strict=True)]
        return self.refine(Maps(sums, maps.deviation))


class LoneNorm(nn.Module):
    """GroupNorm(1) and ReLU for tokens with one map.

    The norm subtracts the mean, which cancels the conv's bias (docs/algebra.md, lemma 8).
    """

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.norm = TokenNorm(step, tokens, grid)

    def forward(self, maps: Maps) -> Maps:
        (tensor,) = maps.divided()
        return Maps([self.norm(tensor).relu()])


class TokenNorm(nn.Module):
    """GroupNorm(1) of every token's own maps, (R, S·C, h, w), as a LayerNorm over C·h·w.

    γ and β of a channel are repeated for its h·w positions (docs/algebra.md, lemma 6).
    """

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.tokens, positions = tokens, grid[0] * grid[1]
        self.norm = nn.LayerNorm(step.norm.num_channels * positions, eps=step.eps)
        self.norm.weight.data = step.norm.weight.detach().repeat_interleave(positions)
        self.norm.bias.data = step.norm.bias.detach().repeat_interleave(positions)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(maps.reshape(maps.shape[0], self.tokens, -1)).view(maps.shape)


class SplitNorm(nn.Module):
    """GroupNorm(1) and ReLU of a token's maps in separate tensors (R, S, h, w).

    The input is multiplied by γ, lacks the conv's bias and is still to be divided by `owed`. The
    output is still to be divided by `deviation` = √(variance + ε)·`owed` (docs/algebra.md, lemma
    8). The variance ⟨z²⟩ − ⟨z⟩² is accurate in FP32 unless a map is nearly constant.
    """

    gamma: Tensor
    beta: Tensor
    bias: Tensor

    def __init__(self, step: Step, grid: tuple[int, int]) -> None:
        super().__init__()
        self.eps, self.grid = step.eps, grid
        gamma = step.norm.weight.detach().double()
        gamma = torch.where(gamma.abs() < SMALLEST_GAMMA, SMALLEST_GAMMA, gamma)
        self.register_buffer("gamma", gamma.view(-1, 1, 1))
        bias = step.conv.bias - step.conv.bias.mean()
        self.register_buffer("bias", bias.view(-1, 1, 1))
        self.register_buffer("beta", step.norm.bias.detach().view(-1, 1, 1))

    def forward(self, maps: Maps) -> Maps:
        owed = maps.deviation
        if owed is None:
            owed = maps.tensors[0].new_ones(maps.tensors[0].shape[:2])
        means = self._averages(maps.tensors)
        squares = self._averages([tensor * tensor for tensor in maps.tensors])
        centres = means / self.gamma + owed * self.bias
        centre = centres.mean(dim=0)
        within = (squares - means**2).relu() / self.gamma**2  # rounding may make it negative
        variance = (within + (centres - centre) ** 2).mean(dim=0)
        deviation = (variance + self.eps * owed**2).sqrt()
        offsets = self.gamma * (owed * self.bias - centre) + self.beta * deviation
        return Maps(
            [
                (tensor + broadcast(offset, self.grid)).relu()
                for tensor, offset in zip(maps.tensors, offsets.unbind(), strict=True)
            ],
            deviation,
        )

    def _averages(self, tensors: Sequence[Tensor]) -> Tensor:
        """The mean of each map, (C, R, S)."""
        return torch.stack([F.avg_pool2d(tensor, self.grid).flatten(1) for tensor in tensors])


def broadcast(values: Tensor, grid: Sequence[int]) -> Tensor:
    """A number for each token, (R, S), broadcast to all positions: (R, S, h, w).

    This is a resize, because ONNX Runtime's blocked layout has no broadcast. The average before it
    changes nothing; it is there because a resize alone does not enter the layout.
    """
    single = F.avg_pool2d(values[..., None, None], 1)
    return F.interpolate(single, scale_factor=tuple(grid), mode="nearest")


def _norm(step: Step, tokens: int, grid: tuple[int, int]) -> nn.Module:
    alone = len(step.conv.weight) == 1
    return LoneNorm(step, tokens, grid) if alone else SplitNorm(step, grid)


def _scaled_weight(step: Step, norm: nn.Module) -> Tensor:
    """The conv's kernels (C', C, k, k), multiplied by γ if `SplitNorm` follows."""
    if isinstance(norm, SplitNorm):
        return step.conv.weight * norm.gamma.view(-1, 1, 1, 1)
    return step.conv.weight


def _with_deviation_of(maps: Maps, coarser: Maps) -> Sequence[Tensor]:
    """The coarser maps, rescaled so that they too are still to be divided by `maps.deviation`."""
    if maps.deviation is None and coarser.deviation is None:
        return coarser.tensors
    one = torch.ones(())
    wanted, found = (one if x.deviation is None else x.deviation for x in (maps, coarser))
    factor = broadcast(wanted / found, coarser.tensors[0].shape[2:])
    return [tensor * factor for tensor in coarser.tensors]
