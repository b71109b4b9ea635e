"""SAR and MAA in the plain decoder, and what every arrangement builds them from.

A token's C maps are side by side, (R, S·C, h, w); R counts the references of all streams. All
tokens share the weights, so each conv is one grouped conv over the tokens, and its GroupNorm(1) is
a norm of each token by itself (docs/algebra.md, lemma 6).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.folds import Affine, affine, fold_affinity_scale
from mrcfa.export.precision import Wide, widened
from mrcfa.model.affinity import Refinement
from mrcfa.model.config import Config


class Step(NamedTuple):
    """conv → GroupNorm(1) → ReLU of the reference model, the conv's weights in float64."""

    conv: Affine
    eps: float
    """The norm's ε; that of `norm` does not count."""
    norm: nn.GroupNorm


def steps_of(block: nn.Module, channels: int = 1) -> list[Step]:
    """The steps of a block of SAR or MAA whose input maps are divided by √channels.

    The first step makes up for the division (docs/algebra.md, lemma 5).
    """
    assert isinstance(block, Refinement)
    steps = []
    for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
        assert isinstance(norm, nn.GroupNorm)
        steps.append(Step(*fold_affinity_scale(affine(conv), norm.eps, channels), norm))
        channels = 1
    return steps


class Queries(nn.Module):
    """Queries after SAR's first conv: (B, h·w, C) -> (B, C, h·w) for each output of the conv.

    The conv commutes with the product of queries and keys (docs/algebra.md, lemma 7), so it is
    computed once for all references. Without SAR the queries are only transposed.
    """

    def __init__(self, grid: tuple[int, int], width: int, kernels: Tensor | None) -> None:
        super().__init__()
        self.grid = grid
        outputs = () if kernels is None else kernels.split(1)
        self.convs = nn.ModuleList(RepeatedConv(kernel, width) for kernel in outputs)

    def forward(self, queries: Tensor) -> list[Tensor]:
        queries = queries.transpose(1, 2)
        if not self.convs:
            return [queries]
        image = queries.unflatten(2, self.grid)
        return [conv(image).flatten(2) for conv in self.convs]


class QueriesByScale(nn.ModuleDict):
    """{stride: (B, h·w, C)} -> the tensors of `Queries` of every scale, coarsest first."""

    def __init__(self, config: Config, kernels: Mapping[int, Tensor | None]) -> None:
        super().__init__(
            {
                str(stride): Queries(config.grid(stride), config.width(stride), of_scale)
                for stride, of_scale in kernels.items()
            }
        )

    def forward(self, queries: Mapping[int, Tensor]) -> list[Tensor]:
        return [image for name, scale in self.items() for image in scale(queries[int(name)])]


class SAR(nn.Sequential):
    """Single-scale affinity refinement: conv → norm → ReLU on the maps of one scale.

    Its first conv is part of `Queries`, which get its `kernels`, (C, 1, k, k); the rest is here.
    """

    def __init__(self, kernels: Tensor, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.kernels = kernels


class MAA(nn.Sequential):
    """One step of multi-scale affinity aggregation, which refines the sum of two scales' maps.

    (R, S·C, h, w) -> (R, S·C', h, w), or `MapsWithMaximum` for a softmax.
    """

    def __init__(self, steps: Sequence[Step], tokens: int, for_softmax: bool = False) -> None:
        super().__init__(*(GroupedLayer(step, tokens) for step in steps))
        if for_softmax:
            self[-1].norm = MapNormWithMaximum(steps[-1])


class GroupedLayer(nn.Module):
    """conv → norm → ReLU, (R, S·C, h, w) -> (R, S·C', h, w); the conv's groups are tokens."""

    def __init__(self, step: Step, tokens: int) -> None:
        super().__init__()
        self.conv = RepeatedConv(step.conv.weight, tokens)
        self.norm = MapNorm(step)

    def forward(self, maps: Tensor) -> "Tensor | MapsWithMaximum":
        refined: Tensor | MapsWithMaximum = self.norm(self.conv(maps))
        return refined


class MapsWithMaximum(NamedTuple):
    """Refined maps and their maximum over the tokens, for a softmax over the tokens."""

    maps: Tensor
    """(R, S, h, w)."""
    negated_maximum: Tensor
    """(R, 1, h, w), minus the largest map at each position, in FP32."""

    @classmethod
    def of(cls, maps: Tensor) -> "MapsWithMaximum":
        return cls(maps, widened(-maps).amin(dim=1, keepdim=True))


class MapNorm(Wide, nn.Module):
    """The conv's bias, GroupNorm(1) and ReLU on every token's own maps, (R, S·C, h, w).

    Statistics are the mean and the mean square of each map. A map is then changed by one product
    and one sum, which become part of the kernel that reads the result (docs/algebra.md, lemma 15).
    """

    gamma: Tensor
    beta: Tensor
    bias: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.eps = step.eps
        self.register_buffer("gamma", step.norm.weight.detach().double())
        self.register_buffer("beta", step.norm.bias.detach().double())
        self.register_buffer("bias", step.conv.bias - step.conv.bias.mean())

    def forward(self, maps: Tensor) -> "Tensor | MapsWithMaximum":
        return self._normed(maps, *self._factors_and_terms(maps)).to(maps.dtype)

    def _normed(self, maps: Tensor, factors: Tensor, terms: Tensor) -> Tensor:
        return (widened(maps) * factors + terms).relu()

    def _factors_and_terms(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """The number that each map is multiplied by, and the one added, (R, S·C, 1, 1)."""
        # Statistics of minus the maps: TensorRT would write maps that two kernels read in FP32.
        negative = widened(-maps)
        means = -self._averages(negative)
        within = (self._averages(negative * negative) - means**2).relu()  # rounding: below zero
        centres = means + self.bias
        centre = centres.mean(dim=2, keepdim=True)
        variance = (within + (centres - centre) ** 2).mean(dim=2, keepdim=True)
        scale = self.gamma / (variance + self.eps).sqrt()
        offset = (self.bias - centre) * scale + self.beta
        factors, terms = (part.flatten(1)[:, :, None, None] for part in (scale, offset))
        return factors, terms

    def _averages(self, maps: Tensor) -> Tensor:
        """The mean of each map, (R, S, C)."""
        return maps.mean(dim=(2, 3)).unflatten(1, (-1, len(self.gamma)))


class MapNormWithMaximum(MapNorm):
    """`MapNorm` for tokens with one map each, before a softmax over the tokens.

    The maximum is computed from the norm's input, so that no kernel writes the norm's result
    (docs/algebra.md, lemma 15).
    """

    def forward(self, maps: Tensor) -> MapsWithMaximum:
        factors, terms = self._factors_and_terms(maps)
        # Halves, because TensorRT would write the maps for kernels that read the same cast of them.
        negative = widened(maps * 0.5) * (-2 * factors) - terms
        negated_maximum = negative.amin(dim=1, keepdim=True).clamp(max=0)
        return MapsWithMaximum(self._normed(maps, factors, terms), negated_maximum)


class Affinity(nn.Module):
    """Products of kept keys (R, S, C) and queries (B, C, h·w): (R, S, h, w).

    The tokens of a stream's references are side by side in one product with that stream's queries;
    the queries of a single stream are broadcast instead. Queries are divided by √C. Without SAR no
    conv makes up for that, so the maps are multiplied by √C here (docs/algebra.md, lemma 5).
    """

    def __init__(self, grid: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.grid, self.scale = grid, channels**0.5

    def forward(self, keys: Tensor, queries: Tensor) -> Tensor:
        if len(queries) == 1:
            products = keys @ queries
        else:
            by_stream = keys.reshape(len(queries), -1, keys.shape[2])
            products = (by_stream @ queries).view(*keys.shape[:2], -1)
        maps = products.unflatten(2, self.grid)
        return maps if self.scale == 1 else maps * self.scale


def upsampled(maps: Tensor) -> Tensor:
    """Maps at twice the size, bilinear with aligned corners: MAA's step to the next scale."""
    return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=True)


class RepeatedConv(nn.Conv2d):
    """The same conv for every token: a grouped conv with repeated weights and without a bias.

    It accepts fewer than `times` tokens too, because the last group may be smaller.
    """

    def __init__(self, weight: Tensor, times: int) -> None:
        outputs, inputs, kernel, _ = weight.shape
        super().__init__(
            times * inputs, times * outputs, kernel, padding=kernel // 2, groups=times, bias=False
        )
        self.weight = nn.Parameter(weight.repeat(times, 1, 1, 1))

    def forward(self, maps: Tensor) -> Tensor:
        tokens = maps.shape[1] // self.weight.shape[1]
        if tokens == self.groups:
            return super().forward(maps)
        weight = self.weight[: len(self.weight) // self.groups * tokens]
        return F.conv2d(maps, weight, padding=self.padding, groups=tokens)
