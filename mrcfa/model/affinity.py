"""Affinities between frames, and the paper's three operations on them: STM, SAR and MAA."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from mrcfa.model.config import TOP_QUERIES, Config
from mrcfa.model.frames import resize


def importance(affinity: Tensor) -> Tensor:
    """The importance of every key token, by which STM selects: (B, queries, keys) -> (B, keys)."""
    count = min(TOP_QUERIES, affinity.shape[1])
    return affinity.topk(count, dim=1).values.sum(dim=1)


def select_tokens(scores: Tensor, kept: int) -> Tensor:
    """Selective token masking (STM): (B, N) scores -> (B, S) indices, ascending."""
    return scores.topk(kept, dim=1).indices.sort(dim=1).values


def upsample_keys(maps: Tensor, grid: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Interpolate bilinearly along the keys: (B, queries, h·w) -> (B, queries, H·W).

    `grid` is (h, w) and `target` is (H, W).
    """
    return resize(maps.unflatten(2, grid), target).flatten(2)


class Refinement(nn.Sequential):
    """A block of SAR or MAA: conv → GroupNorm(1) → ReLU, once per kernel.

    Each kept token is refined as a separate image, so tokens are on the batch axis: (B·S, C, h, w).
    """

    def __init__(self, inputs: int, outputs: Sequence[int], kernels: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for channels, kernel in zip(outputs, kernels, strict=True):
            layers += [
                nn.Conv2d(inputs, channels, kernel, padding=kernel // 2),
                nn.GroupNorm(1, channels),
                nn.ReLU(),
            ]
            inputs = channels
        super().__init__(*layers)


class AffinityRefinement(nn.Module):
    """SAR at every scale, then MAA from the coarsest scale to the finest.

    Maps {stride: (B·S, 1, h, w)} become one map (B·S, 1, h, w) on the finest grid. Without SAR, MAA
    gets the maps unrefined; without MAA, only the finest map is used. The last block has one output
    channel, because a softmax over tokens follows.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.affinity_channels
        strides = config.strides if config.maa else config.strides[-1:]
        finest = strides[-1]
        self.strides = strides
        self.sar = nn.ModuleDict()
        self.maa = nn.ModuleDict()
        if config.sar:
            for stride in strides:
                kernels = config.kernels_at(stride)
                last = channels if len(strides) > 1 else 1
                outputs = (*[1] * (len(kernels) - 1), last)
                self.sar[str(stride)] = Refinement(1, outputs, kernels)
        inputs = channels if config.sar else 1
        for stride in strides[1:]:
            depth = len(config.kernels_at(stride))
            outputs = (*[channels] * (depth - 1), 1 if stride == finest else channels)
            self.maa[str(stride)] = Refinement(inputs, outputs, [3] * depth)
            inputs = channels

    def forward(self, maps: Mapping[int, Tensor]) -> Tensor:
        refined = self._refine(self.strides[0], maps)
        for stride in self.strides[1:]:
            finer = self._refine(stride, maps)
            coarser = resize(refined, finer.shape[2:], align_corners=True)
            refined = self.maa[str(stride)](coarser + finer)
        return refined

    def _refine(self, stride: int, maps: Mapping[int, Tensor]) -> Tensor:
        if not self.sar:
            return maps[stride]
        refined: Tensor = self.sar[str(stride)](maps[stride])
        return refined


def gather_tokens(tokens: Tensor, selected: Tensor) -> Tensor:
    """The selected tokens: tokens (B, N, C) and indices (B, S) -> (B, S, C)."""
    return torch.take_along_dim(tokens, selected.unsqueeze(2), dim=1)


def retrieved_in_groups(groups: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """softmax(maps) @ values over the tokens of all groups: (B, n, C).

    A group has maps (B, n, s) and values (B, s, C). The loop keeps a running maximum of the maps
    and, relative to it, the sums of exponentials and of weighted values (docs/algebra.md, lemma
    16), so that memory holds one group at a time.
    """
    so_far: tuple[Tensor, Tensor, Tensor] | None = None
    for maps, values in groups:
        tokens_first = maps.transpose(1, 2)
        largest = tokens_first.amax(dim=1, keepdim=True)
        exponentials = (tokens_first - largest).exp_()
        totals = exponentials.sum(dim=1, keepdim=True)
        sums = values.transpose(1, 2) @ exponentials
        if so_far is not None:
            largest_before, totals_before, sums_before = so_far
            maximum = torch.maximum(largest_before, largest)
            old, new = (largest_before - maximum).exp(), (largest - maximum).exp()
            totals, sums = totals_before * old + totals * new, sums_before * old + sums * new
            largest = maximum
        so_far = largest, totals, sums
    assert so_far is not None
    _, totals, sums = so_far
    return (sums / totals).transpose(1, 2)
