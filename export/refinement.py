"""SAR and MAA in the decoder graph, once for GPUs and once for CPUs.

Kept tokens are channels here, (R, S, h, w), where the reference model has them on the batch axis:
the weights are shared by all tokens, so each conv is one grouped conv over them, and its
GroupNorm(1) is a norm of each token by itself. Their order does not matter, because the softmax and
the product that follow reduce over them.

A token may have several maps. GPUs want them side by side. ONNX Runtime is several times as fast at
convs, resizes and averages in a layout of its own, blocks of channels; but there a group has one
channel, and a norm has to leave it. So for CPUs the maps of a token go into separate tensors, and a
norm over several of them is made of averages and a sum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import Affine, affine, fold_affinity_scale
from mrcfa.affinity import Refinement

SMALLEST_SCALE = 1e-9
"""Takes the place of a γ of zero, by which `SplitNorm` could not divide."""


class Maps(NamedTuple):
    """C maps for every token: for GPUs one tensor (R, S·C, h, w), for CPUs C tensors (R, S, h, w).

    All are too large by their token's `spread`, (R, S); None stands for one.
    """

    tensors: Sequence[Tensor]
    spread: Tensor | None = None


class Step(NamedTuple):
    """conv → GroupNorm(1) → ReLU of the reference model, the conv's weights in float64."""

    conv: Affine
    eps: float
    """In place of the norm's own."""
    norm: nn.GroupNorm


def steps_of(block: nn.Module, channels: int = 1) -> list[Step]:
    """What a block of SAR or MAA does with affinities of tokens that come divided by √channels."""
    assert isinstance(block, Refinement)
    steps = []
    for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
        assert isinstance(norm, nn.GroupNorm)
        steps.append(Step(*fold_affinity_scale(affine(conv), norm.eps, channels), norm))
        channels = 1
    return steps


class GroupedLayer(nn.Module):
    """A step with a token's maps side by side."""

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.conv = repeated_conv(step.conv.weight, tokens)
        self.conv.bias = nn.Parameter(step.conv.bias.repeat(tokens))
        self.norm = TokenNorm(step, tokens, grid)

    def forward(self, maps: Maps) -> Maps:
        (tensor,) = maps.tensors
        return Maps([self.norm(self.conv(tensor)).relu()])


class SplitLayer(nn.Module):
    """A step with each of a token's maps in a tensor of its own."""

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        weight = step.conv.weight
        self.norm: nn.Module
        if len(weight) == 1:
            self.norm = LoneNorm(step, tokens, grid)
        else:
            self.norm = SplitNorm(step, grid)
            weight = weight * self.norm.scale.view(-1, 1, 1, 1)
        self.convs = nn.ModuleList(
            nn.ModuleList(repeated_conv(kernel[None, None], tokens) for kernel in kernels)
            for kernels in weight
        )

    def forward(self, maps: Maps) -> Maps:
        answers: list[Tensor] = []
        for convs in self.convs:
            assert isinstance(convs, nn.ModuleList)
            parts = [conv(tensor) for conv, tensor in zip(convs, maps.tensors, strict=True)]
            answers.append(sum(parts[1:], start=parts[0]))
        return self.norm(Maps(answers, maps.spread))


class Aggregation(nn.Module):
    """One step of MAA: upsample the coarser maps, add, refine."""

    def __init__(self, refine: nn.Module) -> None:
        super().__init__()
        self.refine = refine

    def forward(self, coarser: Maps, maps: Maps) -> Maps:
        upsampled = [
            F.interpolate(tensor, scale_factor=2.0, mode="bilinear", align_corners=True)
            for tensor in _with_spread_of(maps, coarser)
        ]
        added = list(maps.tensors)
        if len(added) < len(upsampled):  # without SAR a raw map joins every channel
            added *= len(upsampled)
        repeats = upsampled[0].shape[1] // added[0].shape[1]
        if repeats > 1:
            added = [added[0].repeat_interleave(repeats, dim=1)]
        sums = [one + other for one, other in zip(upsampled, added, strict=True)]
        return self.refine(Maps(sums, maps.spread))


class TokenNorm(nn.Module):
    """GroupNorm(1) of every token's own maps, (R, S·C, h, w), as a LayerNorm over C·h·w.

    Both take mean and variance over all that a token has; a LayerNorm scales position by position,
    so each channel's γ and β are written out over its h·w positions.
    """

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.tokens, positions = tokens, grid[0] * grid[1]
        self.norm = nn.LayerNorm(step.norm.num_channels * positions, eps=step.eps)
        self.norm.weight.data = step.norm.weight.detach().repeat_interleave(positions)
        self.norm.bias.data = step.norm.bias.detach().repeat_interleave(positions)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(maps.reshape(maps.shape[0], self.tokens, -1)).view(maps.shape)


class LoneNorm(nn.Module):
    """GroupNorm(1) and ReLU where a token has one map. A conv's bias is lost in the mean."""

    def __init__(self, step: Step, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.norm = TokenNorm(step, tokens, grid)

    def forward(self, maps: Maps) -> Maps:
        (tensor,) = maps.tensors
        if maps.spread is not None:
            tensor = tensor / maps.spread[..., None, None]
        return Maps([self.norm(tensor).relu()])


class SplitNorm(nn.Module):
    """GroupNorm(1) and ReLU of a token's maps in separate tensors: their averages, then a sum.

    A map comes as z = γ(σy − σb), where y is what the conv answers, b its bias, γ the norm's scale
    of that channel and σ the spread. With m the mean and v the variance of z over its positions,
    σy has the mean c = m/γ + σb and the variance v/γ². Over all channels these are μ = ⟨c⟩ and
    V = ⟨v/γ² + (c − μ)²⟩. The norm divides by s = √(V/σ² + ε), so with σ' = σs = √(V + εσ²)
    ReLU(γ(y − μ/σ)/s + β) = ReLU(z + γ(σb − μ) + βσ')/σ': what is left to do is a sum with a
    number for each token, and σ' is the spread of the answer. What all b have in common is lost in
    the mean. v = ⟨z²⟩ − m² is good in FP32 for maps that are not nearly constant, and the zeros
    that a conv sees beyond the edge keep them from that.
    """

    scale: Tensor
    bias: Tensor
    shift: Tensor

    def __init__(self, step: Step, grid: tuple[int, int]) -> None:
        super().__init__()
        self.eps, self.grid = step.eps, grid
        scale = step.norm.weight.detach().double()
        scale = torch.where(scale.abs() < SMALLEST_SCALE, SMALLEST_SCALE, scale)
        self.register_buffer("scale", scale.view(-1, 1, 1))
        bias = step.conv.bias - step.conv.bias.mean()
        self.register_buffer("bias", bias.view(-1, 1, 1))
        self.register_buffer("shift", step.norm.bias.detach().view(-1, 1, 1))

    def forward(self, maps: Maps) -> Maps:
        spread = maps.spread
        if spread is None:
            spread = maps.tensors[0].new_ones(maps.tensors[0].shape[:2])
        means = self._averages(maps.tensors)
        squares = self._averages([tensor * tensor for tensor in maps.tensors])
        centres = means / self.scale + spread * self.bias
        centre = centres.mean(dim=0)
        within = (squares - means**2).relu() / self.scale**2  # rounding may make it negative
        variance = (within + (centres - centre) ** 2).mean(dim=0)
        wider = (variance + self.eps * spread**2).sqrt()
        offsets = self.scale * (spread * self.bias - centre) + self.shift * wider
        return Maps(
            [
                (tensor + everywhere(offset, self.grid)).relu()
                for tensor, offset in zip(maps.tensors, offsets.unbind(), strict=True)
            ],
            wider,
        )

    def _averages(self, tensors: Sequence[Tensor]) -> Tensor:
        """(C, R, S)."""
        return torch.stack([F.avg_pool2d(each, self.grid).flatten(1) for each in tensors])


def everywhere(values: Tensor, grid: Sequence[int]) -> Tensor:
    """A number for each token, (R, S), at all positions: (R, S, h, w).

    As a resize, because ONNX Runtime broadcasts nothing in its blocked layout, of an average that
    changes nothing, because a resize alone does not enter it.
    """
    single = F.avg_pool2d(values[..., None, None], 1)
    return F.interpolate(single, scale_factor=tuple(grid), mode="nearest")


def _with_spread_of(maps: Maps, coarser: Maps) -> Sequence[Tensor]:
    """The coarser maps, too large by what `maps` are too large by."""
    if maps.spread is None and coarser.spread is None:
        return coarser.tensors
    one = torch.ones(())
    wanted, found = (one if each.spread is None else each.spread for each in (maps, coarser))
    factor = everywhere(wanted / found, coarser.tensors[0].shape[2:])
    return [tensor * factor for tensor in coarser.tensors]


def repeated_conv(weight: Tensor, times: int) -> nn.Conv2d:
    """The same conv for every token: a grouped conv with the weights repeated, without a bias."""
    outputs, inputs, kernel, _ = weight.shape
    conv = nn.Conv2d(
        times * inputs, times * outputs, kernel, padding=kernel // 2, groups=times, bias=False
    )
    conv.weight = nn.Parameter(weight.repeat(times, 1, 1, 1))
    return conv
