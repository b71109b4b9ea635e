"""SAR and MAA in the plain decoder: a token's maps side by side, (R, S·C, h, w).

With B streams R counts the references of all, those of a stream one after the other.
The weights are shared by all tokens, so each conv is one grouped conv over them, and its
GroupNorm(1) is a norm of each token by itself (docs/algebra.md, lemma 6).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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


class Queries(nn.Module):
    """Queries after SAR's first conv: (B, h·w, C) -> (B, C, h·w) for each output of the conv.

    The conv commutes with the product of queries and keys (docs/algebra.md, lemma 7), so it is done
    once for all references. Without SAR the queries are transposed only.
    """

    def __init__(self, grid: tuple[int, int], width: int, kernels: Tensor | None) -> None:
        super().__init__()
        self.grid = grid
        kept = () if kernels is None else kernels.split(1)
        self.convs = nn.ModuleList(RepeatedConv(kernel, width) for kernel in kept)

    def forward(self, queries: Tensor) -> list[Tensor]:
        queries = queries.transpose(1, 2)
        if not self.convs:
            return [queries]
        image = queries.unflatten(2, self.grid)
        return [conv(image).flatten(2) for conv in self.convs]


class QueriesByScale(nn.ModuleDict):
    """{stride: (B, h·w, C)} -> what `Queries` make of it at every scale, the coarsest first."""

    def __init__(self, config: Config, kernels: Mapping[int, Tensor | None]) -> None:
        super().__init__(
            {
                str(stride): Queries(config.grid(stride), config.width(stride), each)
                for stride, each in kernels.items()
            }
        )

    def forward(self, asked: Mapping[int, Tensor]) -> list[Tensor]:
        return [each for name, part in self.items() for each in part(asked[int(name)])]


class Refine(nn.Sequential):
    """Steps of SAR or MAA, (R, S·C, h, w) -> (R, S·C', h, w), or `Topped` for a softmax."""

    def __init__(self, steps: Sequence[Step], tokens: int, for_softmax: bool = False) -> None:
        super().__init__(*(GroupedLayer(step, tokens) for step in steps))
        if for_softmax:
            self[-1].norm = ToppedMapNorm(steps[-1])


class GroupedLayer(nn.Module):
    """One conv → norm → ReLU, (R, S·C, h, w) -> (R, S·C', h, w): a grouped conv over tokens."""

    def __init__(self, step: Step, tokens: int) -> None:
        super().__init__()
        self.conv = RepeatedConv(step.conv.weight, tokens)
        self.norm = MapNorm(step)

    def forward(self, maps: Tensor) -> "Tensor | Topped":
        answer: Tensor | Topped = self.norm(self.conv(maps))
        return answer


class Topped(NamedTuple):
    """Maps of a softmax over tokens."""

    maps: Tensor
    """(R, S, h, w)."""
    lowest: Tensor
    """(R, 1, h, w), minus the largest map of each position, in FP32."""

    @classmethod
    def of(cls, maps: Tensor) -> "Topped":
        return cls(maps, widened(-maps).amin(dim=1, keepdim=True))


class MapNorm(Wide, nn.Module):
    """GroupNorm(1) of every token's own maps, (R, S·C, h, w), and ReLU; it adds the conv's bias.

    Statistics are means and means of squares of each map; what is done to a map is then a product
    and a sum, in the kernel of whatever reads the answer (docs/algebra.md, lemma 15).
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

    def forward(self, maps: Tensor) -> "Tensor | Topped":
        return self._normed(maps, *self._line(maps)).to(maps.dtype)

    def _normed(self, maps: Tensor, factors: Tensor, terms: Tensor) -> Tensor:
        return (widened(maps) * factors + terms).relu()

    def _line(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Factors and terms of the maps, (R, S·C, 1, 1)."""
        # Statistics of minus the maps: TensorRT would write maps that two kernels read in FP32.
        negative = widened(-maps)
        means = -self._averages(negative)
        within = (self._averages(negative * negative) - means**2).relu()  # rounding: below zero
        centres = means + self.bias
        centre = centres.mean(dim=2, keepdim=True)
        variance = (within + (centres - centre) ** 2).mean(dim=2, keepdim=True)
        scale = self.gamma / (variance + self.eps).sqrt()
        offset = (self.bias - centre) * scale + self.beta
        factors, terms = (each.flatten(1)[:, :, None, None] for each in (scale, offset))
        return factors, terms

    def _averages(self, maps: Tensor) -> Tensor:
        """(R, S, C)."""
        return maps.mean(dim=(2, 3)).unflatten(1, (-1, len(self.gamma)))


class ToppedMapNorm(MapNorm):
    """`MapNorm` of one map for each token, before a softmax over them.

    The largest is found in what the norm reads, so that no kernel writes what it answers
    (docs/algebra.md, lemma 15).
    """

    def forward(self, maps: Tensor) -> Topped:
        factors, terms = self._line(maps)
        # Halves, because TensorRT would write the maps for kernels that read the same cast of them.
        negative = widened(maps * 0.5) * (-2 * factors) - terms
        lowest = negative.amin(dim=1, keepdim=True).clamp(max=0)
        return Topped(self._normed(maps, factors, terms), lowest)


class Affinity(nn.Module):
    """Kept keys (R, S, C) against a grid of queries (B, C, h·w): (R, S, h, w).

    The tokens of a stream's references stand side by side against that stream's queries. The only
    stream's queries are broadcast instead.
    Queries come divided by √C. Without SAR no conv takes the factor, so maps are multiplied by √C
    here (docs/algebra.md, lemma 5).
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


class TokenGroup(nn.Module):
    """Base of what some tokens say: (queries…, keys…, values), both of every scale.

    Queries (B, C, h·w) come for each output of SAR's first conv, the coarsest first; keys are
    (R, s, C).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.affinity, self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        self.kernels: dict[int, Tensor | None] = {}
        """By stride, those of SAR's first conv, (C, 1, k, k); None without SAR."""

    def maps_by_scale(self, parts: Sequence[Tensor]) -> Iterator[tuple[str, list[Tensor]]]:
        """Of queries and keys: the maps of each scale, (R, s, h, w), for each of its queries."""
        strides = self.config.used_strides
        asked = iter(parts[: -len(strides)])
        keys = dict(zip(strides, parts[-len(strides) :], strict=True))
        for stride, kernels in self.kernels.items():
            queries = islice(asked, 1 if kernels is None else len(kernels))
            affinity = self.affinity[str(stride)]
            yield str(stride), [affinity(keys[stride], each) for each in queries]


def upsampled(maps: Tensor) -> Tensor:
    """Maps at twice the size, bilinear with aligned corners: MAA's step to the next scale."""
    return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=True)


class RepeatedConv(nn.Conv2d):
    """The same conv for every token: a grouped conv with the weights repeated, without a bias.

    It takes fewer than `times` tokens as well, because a last group may have fewer than the others.
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
