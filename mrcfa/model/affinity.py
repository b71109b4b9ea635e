"""Cross-frame affinities and the paper's three operations on them: STM, SAR and MAA."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from mrcfa.model.config import TOP_QUERIES, Config
from mrcfa.model.frames import resize


def importance(affinity: Tensor) -> Tensor:
    """STM's score of every key token: (B, queries, keys) -> (B, keys)."""
    count = min(TOP_QUERIES, affinity.shape[1])
    return affinity.topk(count, dim=1).values.sum(dim=1)


def select_tokens(scores: Tensor, kept: int) -> Tensor:
    """Selective token masking (STM): (B, N) scores -> (B, S) indices, ascending."""
    return scores.topk(kept, dim=1).indices.sort(dim=1).values


def upsample_keys(maps: Tensor, grid: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Bilinear along the key axes: (B, queries, grid) -> (B, queries, target), both flat."""
    return resize(maps.unflatten(2, grid), target).flatten(2)


class Refinement(nn.Sequential):
    """A block of SAR or MAA: conv → GroupNorm(1) → ReLU, once per kernel.

    Every kept token is an image of its own, so tokens ride on the batch axis: (B·S, C, h, w).
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

    {stride: (B·S, 1, h, w)} -> (B·S, 1, h, w) on the finest grid. Without SAR the maps enter the
    aggregation as they are; without MAA the finest map stands alone. The chain's last block ends in
    one channel, which the softmax of the retrieval needs.
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
    """(B, N, C) and (B, S) -> (B, S, C)."""
    return torch.take_along_dim(tokens, selected.unsqueeze(2), dim=1)


def retrieved_in_groups(groups: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """softmax(maps) @ values over all tokens, given maps (B, n, s) and values (B, s, C) of groups.

    Of the groups so far it keeps the largest map and, relative to it, the sums of exponentials and
    of weighted values (docs/algebra.md, lemma 16): (B, n, C).
    """
    known: tuple[Tensor, Tensor, Tensor] | None = None
    for maps, values in groups:
        tokens_first = maps.transpose(1, 2)
        largest = tokens_first.amax(dim=1, keepdim=True)
        exponentials = (tokens_first - largest).exp_()
        totals = exponentials.sum(dim=1, keepdim=True)
        sums = values.transpose(1, 2) @ exponentials
        if known is not None:
            before, totals_before, sums_before = known
            most = torch.maximum(before, largest)
            old, new = (before - most).exp(), (largest - most).exp()
            totals, sums = totals_before * old + totals * new, sums_before * old + sums * new
            largest = most
        known = largest, totals, sums
    assert known is not None
    _, totals, sums = known
    return (sums / totals).transpose(1, 2)
