"""The reference model's refinement in forms that a CPU computes faster, for the export's proof."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.affinity import AffinityRefinement
from mrcfa.model.config import Method
from mrcfa.model.frames import resize
from mrcfa.model.mrcfa import LARGEST_MAPS, MRCFA, Reference, Target
from mrcfa.model.segformer import SegFormer


def refined_quickly(model: SegFormer) -> AbstractContextManager[None]:
    """A context in which the model refines its maps in the fastest form for their number."""
    config = model.config
    if config.method is Method.MRCFA:
        assert isinstance(model, MRCFA)
        if config.kept * config.tokens_at(config.output_stride) > LARGEST_MAPS:
            return _with_tokens_as_channels(model)
    return _without_onednn()


@contextmanager
def margins_noted(model: SegFormer) -> Iterator[list[float]]:
    """A context that lists how clear the model's choices of tokens are, a number for each choice.

    It is the gap in importance between the last token kept and the first one dropped, as a share of
    the largest importance. If a precision cannot resolve the gap, either token may be kept.
    """
    margins: list[float] = []
    if not isinstance(model, MRCFA):
        yield margins
        return
    importance = model.importance

    def noted(target: Target, reference: Reference) -> Tensor:
        scores = importance(target, reference)
        ranked = scores.sort(dim=1, descending=True).values
        kept = model.config.kept_of(scores.shape[1])
        if kept < scores.shape[1]:
            gaps = (ranked[:, kept - 1] - ranked[:, kept]) / scores.abs().amax(dim=1)
            margins.extend(gaps.tolist())
        return scores

    model.importance = noted  # type: ignore[method-assign]  # for the proof of this model alone
    try:
        yield margins
    finally:
        del model.importance


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Switch oneDNN off: it pads the one or two channels of a map to 16, in twice the time."""
    onednn = torch.backends.mkldnn
    enabled = onednn.enabled
    onednn.enabled = False  # type: ignore[assignment]  # torch types it as the descriptor it is
    try:
        yield
    finally:
        onednn.enabled = enabled


@contextmanager
def _with_tokens_as_channels(model: MRCFA) -> Iterator[None]:
    refinement = model.refinement
    model.refinement = TokensAsChannels(refinement)  # type: ignore[assignment]  # called alike
    try:
        yield
    finally:
        model.refinement = refinement


CACHED = 1 << 21
"""Affinities that are refined at once: 8 MB for each of their channels, a share of a cache."""
Maps = Sequence[Tensor]
"""C tensors (1, S, h, w), one for each channel of a token's maps."""


class TokensAsChannels(nn.Module):
    """`AffinityRefinement` of one picture: {stride: (S, 1, h, w)} -> (S, 1, h, w).

    A conv is depthwise over the tokens, once for each pair of its channels. Tokens are the last
    axis in memory, the layout of oneDNN's depthwise convs.
    """

    def __init__(self, refinement: AffinityRefinement) -> None:
        super().__init__()
        self.refinement = refinement

    def forward(self, maps: Mapping[int, Tensor]) -> Tensor:
        positions = math.prod(maps[self.refinement.strides[-1]].shape[2:])
        some = {stride: image.split(max(1, CACHED // positions)) for stride, image in maps.items()}
        parts = [dict(zip(some, part, strict=True)) for part in zip(*some.values(), strict=True)]
        return torch.cat([self._refined(part) for part in parts])

    def _refined(self, maps: Mapping[int, Tensor]) -> Tensor:
        refined: Maps = ()
        for stride in self.refinement.strides:
            finer: Maps = [maps[stride].transpose(0, 1)]
            if self.refinement.sar:
                finer = _refined(finer, self.refinement.sar[str(stride)])
            if refined:
                upper = [resize(image, finer[0].shape[2:], align_corners=True) for image in refined]
                added = [image + finer[min(n, len(finer) - 1)] for n, image in enumerate(upper)]
                finer = _refined(added, self.refinement.maa[str(stride)])
            refined = finer
        (finest,) = refined
        return finest.transpose(0, 1)


def _refined(maps: Maps, block: nn.Module) -> Maps:
    """conv → GroupNorm(1) → ReLU, once per kernel."""
    assert isinstance(block, nn.Sequential)
    for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.GroupNorm)
        maps = [image.relu_() for image in _normalised(_convolved(maps, conv), norm)]
    return maps


def _convolved(maps: Maps, conv: nn.Conv2d) -> Maps:
    assert conv.bias is not None
    tokens, convolved = maps[0].shape[1], []
    for kernels, bias in zip(conv.weight, conv.bias, strict=True):
        total: Tensor | None = None
        for image, kernel in zip(maps, kernels, strict=True):
            repeated = kernel.expand(tokens, 1, *conv.kernel_size)
            biases = bias.expand(tokens) if total is None else None
            part = F.conv2d(image, repeated, biases, padding=conv.padding, groups=tokens)
            total = part if total is None else total.add_(part)
        assert total is not None
        convolved.append(total)
    return convolved


def _normalised(maps: Maps, norm: nn.GroupNorm) -> Maps:
    """Every token normalised over all its channels and positions, in place."""
    positions = len(maps) * math.prod(maps[0].shape[2:])
    sums = [image.sum(dim=(2, 3), keepdim=True) for image in maps]
    centre = torch.stack(sums).sum(dim=0) / positions
    centred = [image.sub_(centre) for image in maps]
    squares = [image.square().sum(dim=(2, 3), keepdim=True) for image in centred]
    scale = (torch.stack(squares).sum(dim=0) / positions + norm.eps).rsqrt()
    affine = zip(centred, norm.weight, norm.bias, strict=True)
    return [image.mul_(scale * gamma).add_(beta) for image, gamma, beta in affine]
