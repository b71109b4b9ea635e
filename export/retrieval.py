"""Retrieval in the plain decoder: a softmax over kept tokens, times values, to class scores."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mrcfa.export.decoder import summed_by_stream
from mrcfa.export.precision import widened
from mrcfa.export.refinement import MapsWithMaximum
from mrcfa.model.frames import resize


class RunningSoftmax(NamedTuple):
    """A softmax over the tokens so far, at every position (docs/algebra.md, lemma 16)."""

    negated_maximum: Tensor
    """(R, 1, h·w), minus the largest map."""
    totals: Tensor
    """(R, 1, h·w), the sum of exponentials."""
    sums: Tensor
    """(R, C, h·w), the values weighted by them."""

    def merged(self, other: "RunningSoftmax") -> "RunningSoftmax":
        negated = torch.minimum(other.negated_maximum, self.negated_maximum)
        old, new = (negated - self.negated_maximum).exp(), (negated - other.negated_maximum).exp()
        return RunningSoftmax(
            negated, old * self.totals + new * other.totals, old * self.sums + new * other.sums
        )

    def before(self, keys: Tensor) -> Tensor:
        """The keys plus a zero that is computed from the sums.

        TensorRT would run independent groups at the same time, and hold the maps of all.
        """
        largest = self.sums.amax(dim=(0, 1, 2))
        zero = torch.minimum(largest.relu(), (-largest).relu())
        return keys + zero.to(keys.dtype)


class Retrieval(nn.Module):
    """(R, s, h, w) maps, (R, s, C) values -> `RunningSoftmax`.

    The softmax over the tokens of a reference is divided after the product (docs/algebra.md, lemma
    10). Values are class scores, divided by R already (lemma 4).
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.shift = math.ceil(math.log2(tokens)) * math.log(2)

    def forward(self, refined: MapsWithMaximum, values: Tensor) -> RunningSoftmax:
        maps, negated_maximum = (part.flatten(2) for part in refined)
        exponentials = (widened(maps) + (negated_maximum - self.shift)).exp().to(values.dtype)
        totals = widened(exponentials).sum(dim=1, keepdim=True)
        sums = widened(values.transpose(1, 2) @ exponentials)
        return RunningSoftmax(negated_maximum, totals, sums)


class Scores(nn.Module):
    """(B, C, h, w) base and its references' softmaxes -> (B, C, H/4, W/4) logits."""

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, softmaxes: Sequence[RunningSoftmax]) -> Tensor:
        scores = widened(base)
        for softmax in softmaxes:
            retrieved = summed_by_stream(softmax.sums / softmax.totals, len(base))
            scores = scores + retrieved.view(base.shape)
        scores = scores.to(base.dtype)
        return resize(scores, self.quarter)
