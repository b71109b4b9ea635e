"""MiT's stages for GPUs, with tokens as an image with channels last, (B, h, w, C), throughout.

Convs, products and norms read and write this layout directly. If tokens are (B, h·w, C) in one
place and (B, C, h, w) in another, a compiler writes the result of a norm twice.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from mrcfa.export.folds import Affine, affine, conv_of
from mrcfa.model.mit import Attention, Block, MiT, MixFFN, PatchEmbedding, Stage

SHARES = 4
"""Number of heads that replace a single one. A stage with one head has a multiple of 64 queries."""


def with_channels_last(encoder: MiT) -> MiT:
    """A copy of the encoder whose stages work on images with channels last."""
    encoder = deepcopy(encoder)
    encoder.stages = nn.ModuleList(LastAxisStage(stage) for stage in encoder.stages)
    return encoder


class LastAxisStage(nn.Module):
    """`Stage`, (B, C, h, w) -> (B, C', h', w'), with (B, h', w', C') between its blocks."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        assert isinstance(stage, Stage)
        self.embed = LastAxisEmbedding(stage.embed)
        self.blocks = nn.ModuleList(LastAxisBlock(block) for block in stage.blocks)
        self.norm = stage.norm

    def forward(self, image: Tensor) -> Tensor:
        image = self.embed(image)
        for block in self.blocks:
            image = block(image)
        return channels_first(self.norm(image))


class LastAxisEmbedding(PatchEmbedding):
    """`PatchEmbedding` without the grid among its outputs.

    It is a subclass because FP16 graphs have their FP32 norms in classes of this type. Pixels are
    FP32 (`export.pixels`) and are rounded here.
    """

    def __init__(self, embed: PatchEmbedding) -> None:
        nn.Module.__init__(self)
        self.proj, self.norm = embed.proj, embed.norm

    def forward(self, image: Tensor) -> Tensor:  # type: ignore[override]  # no grid beside it
        embedded: Tensor = self.norm(channels_last(self.proj(image.to(self.proj.weight.dtype))))
        return embedded


class LastAxisBlock(nn.Module):
    """`Block` on (B, h, w, C)."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        assert isinstance(block, Block)
        assert isinstance(block.attn, Attention)
        assert isinstance(block.mlp, MixFFN)
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.attn = (SplitAttention if block.attn.heads == 1 else HeadsAttention)(block.attn)
        self.mlp = LastAxisFFN(block.mlp)

    def forward(self, image: Tensor) -> Tensor:
        image = image + self.attn(self.norm1(image))
        image = image + self.mlp(self.norm2(image))
        return image


class _Attention(nn.Module):
    """Keys and values of `Attention`; the factor 1/√C of the scores is part of the queries."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.heads, self.width = attention.heads, attention.width // attention.heads
        query = affine(attention.q)
        factor = self.width**-0.5
        self.q = linear_of(Affine(query.weight * factor, query.bias * factor))
        self.kv, self.proj, self.sr = attention.kv, attention.proj, attention.sr
        if self.sr is not None:
            self.norm = attention.norm

    def keys_and_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, n, C) and values (B, n, C)."""
        if self.sr is not None:
            image = self.norm(channels_last(self.sr(channels_first(image))))
        keys, values = self.kv(image.flatten(1, 2)).chunk(2, dim=-1)
        return keys, values


class HeadsAttention(_Attention):
    """`Attention` with several heads."""

    def forward(self, image: Tensor) -> Tensor:
        tokens = (self.q(image.flatten(1, 2)), *self.keys_and_values(image))
        queries, keys, values = (
            part.unflatten(2, (self.heads, self.width)).transpose(1, 2) for part in tokens
        )
        mixed: Tensor = self.proj(_mixed(queries, keys, values).transpose(1, 2).flatten(2))
        return mixed.view(image.shape)


class SplitAttention(_Attention):
    """`Attention` with one head, as several heads that share keys and values.

    TensorRT fuses an attention only with several heads or images; its scores then stay on the chip.
    Each of the heads here has a share of the queries (docs/algebra.md, lemma 9 e), and the
    projection is applied to the values, which are fewer (9 b).
    """

    def forward(self, image: Tensor) -> Tensor:
        keys, values = self.keys_and_values(image)
        values = self.proj(values)
        queries = self.q(image.flatten(1, 2))
        if len(image) == 1:
            keys, values = (part.expand(SHARES, -1, -1) for part in (keys, values))
            queries = queries.reshape(SHARES, -1, self.width)
        return _mixed(queries, keys, values).view(image.shape)


class LastAxisFFN(nn.Module):
    """`MixFFN` on (B, h, w, C). Its linears are 1×1 convs, in the layout of the conv between."""

    def __init__(self, ffn: MixFFN) -> None:
        super().__init__()
        self.fc1, self.fc2 = conv_of(affine(ffn.fc1)), conv_of(affine(ffn.fc2))
        self.dwconv = ffn.dwconv

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.dwconv(self.fc1(channels_first(image)))
        hidden = (hidden * 0.5) * (1 + torch.erf(hidden / 2**0.5))
        return channels_last(self.fc2(hidden))


def _mixed(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of queries (…, N, C) to keys and values (…, n, C): (…, N, C)."""
    return (queries @ keys.transpose(-2, -1)).softmax(dim=-1) @ values


def linear_of(folded: Affine) -> nn.Linear:
    outputs, inputs = folded.weight.shape
    linear = nn.Linear(inputs, outputs)
    linear.weight, linear.bias = nn.Parameter(folded.weight), nn.Parameter(folded.bias)
    return linear


def channels_first(image: Tensor) -> Tensor:
    """Channels first: (B, h, w, C) -> (B, C, h, w)."""
    return image.permute(0, 3, 1, 2)


def channels_last(image: Tensor) -> Tensor:
    """Channels last: (B, C, h, w) -> (B, h, w, C)."""
    return image.permute(0, 2, 3, 1)
