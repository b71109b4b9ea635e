"""The encoder graph: a camera frame in; class scores, queries and the memory's entry out."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.folds import (
    Affine,
    affine,
    conv_of,
    fold_after_conv,
    fold_fusion,
    fold_query_scale,
    fold_values,
)
from mrcfa.export.interpolation import Interpolation, Size
from mrcfa.export.precision import widened
from mrcfa.model.frames import Normalise, resize
from mrcfa.model.mit import Block, MiT, MixFFN, as_image, as_tokens
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer


class FrameEncoder(nn.Module):
    """Base of the encoder graphs: pixels, MiT's stages and their fused feature."""

    def __init__(self, model: SegFormer, on_full_feature: bool) -> None:
        super().__init__()
        self.on_full_feature = on_full_feature
        self.prepare = Normalise(model.config.size)
        self.encoder = with_channels_first(model.encoder)
        self.fusion: nn.Module = FoldedFusion(fold_fusion(model.fusion), on_full_feature)


class EncoderGraph(FrameEncoder):
    """uint8 (B, h, w, 3) -> base, queries (finest scale first) and entry; see `export.tensors`."""

    def __init__(self, model: MRCFA) -> None:
        config = model.config
        super().__init__(model, config.output_stride == 4)
        self.strides = config.used_strides
        self.query, self.key = nn.ModuleDict(), nn.ModuleDict()
        for stride in self.strides:
            name = str(stride)
            query, key = affine(model.query[name]), affine(model.key[name])
            if name in model.reduce:
                key = fold_after_conv(key, affine(model.reduce[name]))
            self.query[name] = TokenConv(fold_query_scale(query, config.width(stride)))
            self.key[name] = TokenConv(key, rows=config.tokens)
        classify = affine(model.classify)
        self.value = TokenConv(
            fold_values(classify, affine(model.value), len(config.references)), rows=config.tokens
        )
        self.base = conv_of(classify)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        stages = self.encoder(self.prepare(image))
        feature, half = self.fusion(stages)
        by_stride = dict(zip((4, 8, 16, 32), stages, strict=True))
        queries = [self.query[str(s)](by_stride[s]) for s in reversed(self.strides)]
        keys = [self.key[str(s)](by_stride[s]) for s in self.strides]
        entry = torch.cat([*keys, self.value(half)], dim=2)
        return self.base(feature), *queries, entry


class ConvFFN(nn.Module):
    """`MixFFN` on an image, with 1×1 convs for its linears.

    In ONNX Runtime four steps in a row then share its layout of blocked channels, and biases cost
    nothing. GELU's factors are in the order that it fuses.
    """

    def __init__(self, ffn: MixFFN) -> None:
        super().__init__()
        self.fc1, self.fc2 = conv_of(affine(ffn.fc1)), conv_of(affine(ffn.fc2))
        self.dwconv = ffn.dwconv

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        hidden = self.dwconv(self.fc1(as_image(tokens, grid)))
        hidden = (hidden * 0.5) * (1 + torch.erf(hidden / 2**0.5))
        return as_tokens(self.fc2(hidden))


def with_channels_first(encoder: MiT) -> MiT:
    """A copy of the encoder whose feed-forward parts work on images instead of tokens."""
    encoder = deepcopy(encoder)
    for block in encoder.modules():
        if isinstance(block, Block) and isinstance(block.mlp, MixFFN):
            block.mlp = ConvFFN(block.mlp)
    return encoder


class FoldedFusion(nn.Module):
    """c1…c4 -> the feature that the classifier reads, F or F½, and F½.

    Each matrix of `fold_fusion` is applied at its stage's own resolution.
    """

    def __init__(self, folded: Sequence[Affine], full: bool) -> None:
        super().__init__()
        self.stages, self.full = nn.ModuleList(conv_of(stage) for stage in folded), full
        self.halve = nn.AvgPool2d(2)  # bilinear halving of an even size: docs/algebra.md, lemma 2

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        finest, *coarser = (
            conv(feature) for conv, feature in zip(self.stages, features, strict=True)
        )
        lifted = [resize(feature, finest.shape[2:]) for feature in coarser]
        fused = F.relu(finest + sum(lifted[1:], lifted[0]))
        half = self.halve(fused)
        return fused if self.full else half, half


class GatheredFusion(FoldedFusion):
    """`FoldedFusion` for GPUs, whose compilers fuse everything after the convs into one kernel."""

    def __init__(self, folded: Sequence[Affine], full: bool, grids: Sequence[Size]) -> None:
        super().__init__(folded, full)
        finest, *coarser = grids
        self.lift = nn.ModuleList(Interpolation(grid, finest) for grid in coarser)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        finest, *coarser = (
            conv(feature) for conv, feature in zip(self.stages, features, strict=True)
        )
        lifted = [lift(feature) for lift, feature in zip(self.lift, coarser, strict=True)]
        coarse = sum(lifted[1:], lifted[0])
        if self.full:
            fused = F.relu(widened(finest) + coarse).to(finest.dtype)
            return fused, self.halve(fused)
        parts = [
            F.relu(widened(finest[:, :, y::2, x::2]) + coarse[:, :, y::2, x::2])
            for y in (0, 1)
            for x in (0, 1)
        ]
        half = (sum(parts[1:], parts[0]) / 4).to(finest.dtype)
        return half, half


class TokenConv(nn.Module):
    """A folded conv that outputs tokens, packed into `rows` rows if given."""

    def __init__(self, folded: Affine, rows: int | None = None) -> None:
        super().__init__()
        self.conv, self.rows = conv_of(folded), rows

    def forward(self, image: Tensor) -> Tensor:
        tokens = as_tokens(self.conv(image))
        return tokens if self.rows is None else tokens.reshape(len(tokens), self.rows, -1)
