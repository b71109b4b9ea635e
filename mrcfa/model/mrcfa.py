"""MRCFA, the paper's model: a clip in, logits of its last frame out.

It is written for reading, without optimisation. `export` optimises, and is compared with it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.errors import InvalidValue, Mismatch
from mrcfa.model.affinity import (
    AffinityRefinement,
    gather_tokens,
    importance,
    retrieved_in_groups,
    select_tokens,
    upsample_keys,
)
from mrcfa.model.config import FEATURE_CHANNELS, Config, check_size
from mrcfa.model.frames import resize
from mrcfa.model.mit import as_tokens
from mrcfa.model.segformer import Features, SegFormer

Grid = tuple[int, int]

LARGEST_MAPS = 1 << 25
"""Affinities at the finest scale that are refined at once; they take 128 MB per channel."""


class Target(NamedTuple):
    """The frame to segment: queries (B, tokens, C) and grids by stride, feature (B, 256, h, w)."""

    queries: dict[int, Tensor]
    grids: dict[int, Grid]
    feature: Tensor


class Reference(NamedTuple):
    """An earlier frame: keys (B, tokens, C) and grids by stride, values (B, N, 256) and grid."""

    keys: dict[int, Tensor]
    grids: dict[int, Grid]
    values: Tensor
    grid: Grid


class MRCFA(SegFormer):
    """The paper's model: a normalised clip (B, T, 3, H, W) -> logits (B, classes, H/4, W/4).

    The target is the last of the T frames. T is the number of references plus one, or 1 for the
    single-frame prediction.
    """

    def _build(self, config: Config) -> None:
        super()._build(config)
        self.query, self.key, self.reduce = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for stride in config.strides:
            width = config.width(stride)
            self.query[str(stride)] = nn.Linear(width, width)
            self.key[str(stride)] = nn.Linear(width, width)
            factor = config.key_stride // stride
            if factor > 1:
                self.reduce[str(stride)] = nn.Conv2d(width, width, factor, stride=factor)
        factor = config.key_stride // 8
        self.value = nn.Conv2d(FEATURE_CHANNELS, FEATURE_CHANNELS, factor, stride=factor)
        self.refinement = AffinityRefinement(config)
        self.classify = nn.Conv2d(FEATURE_CHANNELS, config.classes, 1)

    def forward(self, clip: Tensor) -> Tensor:
        batch, frames = self._check(clip)
        features = self.encode(clip.transpose(0, 1).flatten(0, 1))
        if frames == 1:
            return self.predict_single(features)
        *earlier, now = features.split(batch)
        return self.decode(self.as_target(now), [self.as_reference(frame) for frame in earlier])

    def as_target(self, features: Features) -> Target:
        queries, grids = {}, {}
        for stride in self.config.strides:
            stage = _stage(features, stride)
            queries[stride] = self.query[str(stride)](as_tokens(stage))
            grids[stride] = _grid(stage)
        feature = features.fused if self.config.output_stride == 4 else _half(features.fused)
        return Target(queries, grids, feature)

    def as_reference(self, features: Features) -> Reference:
        keys, grids = {}, {}
        for stride in self.config.strides:
            stage = _stage(features, stride)
            if str(stride) in self.reduce:
                stage = self.reduce[str(stride)](stage)
            keys[stride] = self.key[str(stride)](as_tokens(stage))
            grids[stride] = _grid(stage)
        values = self.value(_half(features.fused))
        return Reference(keys, grids, as_tokens(values), _grid(values))

    def select(self, target: Target, reference: Reference) -> Tensor:
        """STM: indices of the kept tokens, (B, S)."""
        scores = self.importance(target, reference)
        return select_tokens(scores, self.config.kept_of(math.prod(reference.grid)))

    def importance(self, target: Target, reference: Reference) -> Tensor:
        """Importance of every token of the reference, (B, N)."""
        coarse = target.queries[32] @ reference.keys[32].transpose(1, 2)
        scores = upsample_keys(importance(coarse).unsqueeze(1), reference.grids[32], reference.grid)
        return scores.squeeze(1)

    def retrieve(self, target: Target, reference: Reference) -> Tensor:
        """The feature retrieved from one reference for the target's positions, (B, 256, h, w).

        Tokens are refined independently, so large inputs are done in groups of tokens: memory never
        holds all maps.
        """
        selected = self.select(target, reference)
        positions = math.prod(target.grids[self.config.strides[-1]])
        groups = selected.split(max(1, LARGEST_MAPS // positions), dim=1)
        pairs = (
            (self._refined(target, reference, group), gather_tokens(reference.values, group))
            for group in groups
        )
        if len(groups) > 1:
            tokens = retrieved_in_groups(pairs)
        else:
            maps, values = next(pairs)
            tokens = maps.softmax(dim=2) @ values
        return tokens.transpose(1, 2).view_as(target.feature)

    def _refined(self, target: Target, reference: Reference, selected: Tensor) -> Tensor:
        """Refined affinities (SAR, MAA) of the selected tokens: (B, s) -> (B, h·w, s)."""
        maps = {}
        for stride, affinity in self._affinities(target, reference, selected).items():
            images = affinity.transpose(1, 2).unflatten(2, target.grids[stride])
            maps[stride] = images.flatten(0, 1).unsqueeze(1)
        refined = self.refinement(maps)
        refined = resize(refined, target.feature.shape[2:], align_corners=True)
        return refined.view(*selected.shape, -1).transpose(1, 2)

    def _affinities(
        self, target: Target, reference: Reference, selected: Tensor
    ) -> dict[int, Tensor]:
        """Affinities of the selected tokens at every scale: (B, s) -> {stride: (B, h·w, s)}."""
        affinities = {}
        for stride in self.config.strides:
            if reference.grids[stride] == reference.grid:
                keys = gather_tokens(reference.keys[stride], selected)
                affinities[stride] = target.queries[stride] @ keys.transpose(1, 2)
            else:
                affinity = upsample_keys(
                    target.queries[stride] @ reference.keys[stride].transpose(1, 2),
                    reference.grids[stride],
                    reference.grid,
                )
                kept = torch.take_along_dim(affinity, selected.unsqueeze(1), dim=2)
                affinities[stride] = kept
        return affinities

    def decode(self, target: Target, references: list[Reference]) -> Tensor:
        """Logits (B, classes, H/4, W/4) of the mean retrieved feature plus the target's own.

        The first frames of a stream may use the same reference several times; it is retrieved once.
        """
        distinct = {id(reference): reference for reference in references}
        retrieved = {key: self.retrieve(target, found) for key, found in distinct.items()}
        features = torch.stack([retrieved[id(reference)] for reference in references])
        feature = target.feature + features.mean(dim=0)
        logits: Tensor = self.classify(feature)
        if self.config.output_stride == 4:
            return logits
        return F.interpolate(logits, scale_factor=2, mode="bilinear", align_corners=False)

    def _check(self, clip: Tensor) -> tuple[int, int]:
        if clip.ndim != 5 or clip.shape[2] != 3:
            raise InvalidValue(
                f"a clip has shape (batch, frames, 3, height, width), not {tuple(clip.shape)}"
            )
        check_size((clip.shape[3], clip.shape[4]))
        wanted = len(self.config.references) + 1
        if clip.shape[1] not in (1, wanted):
            raise Mismatch(
                f"a clip of {clip.shape[1]} frames does not fit: give {wanted} "
                f"({wanted - 1} references and the target), or 1 for the single-frame prediction"
            )
        return clip.shape[0], clip.shape[1]


def _stage(features: Features, stride: int) -> Tensor:
    return features.stages[stride.bit_length() - 3]


def _grid(image: Tensor) -> Grid:
    return image.shape[2], image.shape[3]


def _half(fused: Tensor) -> Tensor:
    """The paper's F½: the fused feature at half size."""
    return F.interpolate(fused, scale_factor=0.5, mode="bilinear", align_corners=False)
