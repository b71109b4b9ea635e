"""MRCFA, the paper's model, written to be read: a clip in, the last frame's logits out.

Nothing here is folded or streamlined; `export` does that and is measured against this.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.errors import MrcfaError
from mrcfa.model.affinity import (
    AffinityRefinement,
    gather_tokens,
    importance,
    select_tokens,
    upsample_keys,
)
from mrcfa.model.config import FEATURE_CHANNELS, Config, check_size
from mrcfa.model.frames import resize
from mrcfa.model.fusion import Fusion
from mrcfa.model.mit import MiT, as_tokens

Grid = tuple[int, int]


class Features(NamedTuple):
    """What the encoder sees in a frame: c1…c4 and the fused F (B, 256, H/4, W/4)."""

    stages: tuple[Tensor, ...]
    fused: Tensor


class Target(NamedTuple):
    """What the frame being segmented asks: queries (B, tokens, C) by stride, its own feature."""

    queries: dict[int, Tensor]
    grids: dict[int, Grid]
    feature: Tensor


class Reference(NamedTuple):
    """What an earlier frame answers with: keys (B, tokens, C) by stride, values (B, N, 256)."""

    keys: dict[int, Tensor]
    grids: dict[int, Grid]
    values: Tensor
    grid: Grid


class Relation(NamedTuple):
    """One reference's kept tokens (B, S) and their weight at every position, (B, h·w, S)."""

    selected: Tensor
    weights: Tensor


class MRCFA(nn.Module):
    """(B, T, 3, H, W) normalised clip, target last -> (B, classes, H/4, W/4) logits.

    T is one more than the number of references, or 1 for the single-frame prediction.
    """

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(config)
            self.apply(_initialise)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # CPUs like it
        self.eval()

    def _build(self, config: Config) -> None:
        self.encoder = MiT(config.widths, config.depths)
        self.fusion = Fusion(config.widths)
        self.linear_pred = nn.Conv2d(FEATURE_CHANNELS, config.classes, 1)
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
        *earlier, now = (
            Features(tuple(part[:-1]), part[-1])
            for part in zip(
                *(tensor.split(batch) for tensor in (*features.stages, features.fused)),
                strict=True,
            )
        )
        return self.decode(self.ask(now), [self.answer(frame) for frame in earlier])

    def encode(self, frames: Tensor) -> Features:
        """(B, 3, H, W) -> stage features and F."""
        stages = self.encoder(frames)
        return Features(stages, self.fusion(stages))

    def predict_single(self, features: Features) -> Tensor:
        """The single-frame prediction, which the authors use while there are no references."""
        logits: Tensor = self.linear_pred(features.fused)
        return logits

    def ask(self, features: Features) -> Target:
        queries, grids = {}, {}
        for stride in self.config.strides:
            stage = _stage(features, stride)
            queries[stride] = self.query[str(stride)](as_tokens(stage))
            grids[stride] = _grid(stage)
        feature = features.fused if self.config.output_stride == 4 else _half(features.fused)
        return Target(queries, grids, feature)

    def answer(self, features: Features) -> Reference:
        keys, grids = {}, {}
        for stride in self.config.strides:
            stage = _stage(features, stride)
            if str(stride) in self.reduce:
                stage = self.reduce[str(stride)](stage)
            keys[stride] = self.key[str(stride)](as_tokens(stage))
            grids[stride] = _grid(stage)
        values = self.value(_half(features.fused))
        return Reference(keys, grids, as_tokens(values), _grid(values))

    def relate(self, target: Target, reference: Reference) -> Relation:
        """STM, SAR, MAA and the softmax over the kept tokens, for one reference."""
        grid = reference.grid
        coarse = target.queries[32] @ reference.keys[32].transpose(1, 2)
        scores = upsample_keys(importance(coarse).unsqueeze(1), reference.grids[32], grid)
        selected = select_tokens(scores.squeeze(1), self.config.kept_of(math.prod(grid)))

        maps = {}
        for stride in self.config.strides:
            if reference.grids[stride] == grid:
                keys = gather_tokens(reference.keys[stride], selected)
                affinity = target.queries[stride] @ keys.transpose(1, 2)
            else:
                affinity = upsample_keys(
                    target.queries[stride] @ reference.keys[stride].transpose(1, 2),
                    reference.grids[stride],
                    grid,
                )
                affinity = torch.take_along_dim(affinity, selected.unsqueeze(1), dim=2)
            images = affinity.transpose(1, 2).unflatten(2, target.grids[stride])
            maps[stride] = images.flatten(0, 1).unsqueeze(1)
        refined = self.refinement(maps)
        refined = resize(refined, target.feature.shape[2:], align_corners=True)
        weights = refined.view(*selected.shape, -1).transpose(1, 2).softmax(dim=2)
        return Relation(selected, weights)

    def decode(self, target: Target, references: list[Reference]) -> Tensor:
        """Retrieve every reference's values, average them, add the target's own feature."""
        retrieved = []
        for reference in references:
            selected, weights = self.relate(target, reference)
            retrieved.append(weights @ gather_tokens(reference.values, selected))
        mean = torch.stack(retrieved).mean(dim=0)
        feature = target.feature + mean.transpose(1, 2).view_as(target.feature)
        logits: Tensor = self.classify(feature)
        if self.config.output_stride == 4:
            return logits
        return F.interpolate(logits, scale_factor=2, mode="bilinear", align_corners=False)

    def _check(self, clip: Tensor) -> tuple[int, int]:
        if clip.ndim != 5 or clip.shape[2] != 3:
            raise MrcfaError(
                f"a clip has shape (batch, frames, 3, height, width), not {tuple(clip.shape)}"
            )
        check_size((clip.shape[3], clip.shape[4]))
        wanted = len(self.config.references) + 1
        if clip.shape[1] not in (1, wanted):
            raise MrcfaError(
                f"a clip of {clip.shape[1]} frames does not fit: give {wanted} "
                f"({wanted - 1} references and the target), or 1 for the single-frame prediction"
            )
        return clip.shape[0], clip.shape[1]


def _stage(features: Features, stride: int) -> Tensor:
    return features.stages[stride.bit_length() - 3]


def _grid(image: Tensor) -> Grid:
    return image.shape[2], image.shape[3]


def _half(fused: Tensor) -> Tensor:
    """F½: F at half size."""
    return F.interpolate(fused, scale_factor=0.5, mode="bilinear", align_corners=False)


def _initialise(module: nn.Module) -> None:
    """Truncated normal 0.02 for linears and biases, fan-out normal for convs.

    SegFormer begins with zero biases, but an exporter drops what adds zero, and a random model
    would then be faster than a trained one.
    """
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    elif isinstance(module, nn.Conv2d):
        fan_out = module.out_channels * math.prod(module.kernel_size) // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
    else:
        return
    if module.bias is not None:
        nn.init.trunc_normal_(module.bias, std=0.02)
