"""The stateful decoder graph: a frame's queries and the memory in, mask and memory out. For export.

Kept tokens are channels here, (R, S, h, w), where the reference model has them on the batch axis:
the weights are shared by all tokens, so each conv of SAR and MAA is one grouped conv over them, and
its GroupNorm(1) is a norm of each token by itself. Their order does not matter, because the softmax
and the product that follow reduce over them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import Affine, affine, fold_affinity_scale
from export.layout import Layout
from export.precision import make_half
from export.retrieval import (
    ClassesFirst,
    LastAxisMask,
    LastAxisRetrieval,
    Mask,
    Retrieval,
    resize,
    shift_for,
)
from export.select_tokens import select_tokens
from mrcfa.affinity import Refinement
from mrcfa.model import MRCFA
from mrcfa.schedule import memory_table

BLOCK = 16
"""ONNX Runtime's depthwise convs are fast on whole blocks of channels, 8 or 16 on most CPUs."""
LAST_FRAME = 2**30
"""The frame number saturates here, years before int32 would overflow."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits, mask if asked for).

    Only one of the last two is an output of the ONNX graph. The FP32 graph is laid out for CPUs: it
    refines one reference after the other, so that their maps stay in the cache, and has the classes
    on the last axis; tokens that come again, and do not count, fill up the last block of their
    channels. The FP16 graph is laid out for GPUs, which would rather have it all at once; so is an
    FP32 graph with more positions than `shift_for` can serve.
    """

    def __init__(
        self, model: MRCFA, layout: Layout, frame: tuple[int, int], output: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        config = model.config
        self.strides, self.scales = layout.strides, model.refinement.strides
        self.finest, self.output = layout.grid(config.output_stride), output
        shift = None
        if dtype == torch.float32:
            shift = shift_for(model.refinement, layout.tokens(self.scales[-1]))
        kept = layout.selection.keep
        tokens = kept if shift is None else -(-kept // BLOCK) * BLOCK
        self.recall = Recall(config.references)
        self.stm = Selection(layout, tokens)
        self.affinity, self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for stride in self.scales:
            name, grid = str(stride), layout.grid(stride)
            channels = config.width(stride)
            refined = name in model.refinement.sar
            self.affinity[name] = Affinity(grid, 1 if refined else channels)
            if refined:
                self.sar[name] = over_tokens(model.refinement.sar[name], tokens, grid, channels)
            if name in model.refinement.maa:
                self.maa[name] = Aggregation(model.refinement.maa[name], tokens, grid)
        self.classes_last = shift is not None
        if shift is not None:
            self.together = 1
            self.retrieval: nn.Module = LastAxisRetrieval(layout.grid(4), shift, kept, tokens)
            self.logits: nn.Module = ClassesFirst()
            self.mask: nn.Module = LastAxisMask(config.size, frame)
        else:
            self.together = len(config.references)
            self.retrieval = Retrieval(layout.grid(4))
            self.logits = nn.Identity()
            self.mask = Mask(config.size, frame)
        self.float()
        if dtype == torch.float16:
            make_half(self)

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = (part.split(self.together) for part in self.stm(asked[32], references))
        weights = [
            self._weights(asked, dict(zip(self.strides, kept, strict=True)))
            for kept in zip(*keys, strict=True)
        ]
        logits = self.retrieval(base, weights, values)
        answers = [self.logits(logits)] if self.output == "logits" else [logits, self.mask(logits)]
        return memory_out, frame_out, *answers

    def _weights(self, asked: dict[int, Tensor], kept: dict[int, Tensor]) -> Tensor:
        """SAR and MAA for some references: (r, S, h·w) on the finest grid."""
        refined: Tensor | None = None
        for stride in self.scales:
            name = str(stride)
            maps = self.affinity[name](kept[stride], asked[stride])
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.maa[name](refined, maps)
        assert refined is not None
        return resize(refined, self.finest, align_corners=True).flatten(2)


class Recall(nn.Module):
    """The schedule as a table: which R of the last M + 1 entries serve this frame."""

    schedule: Tensor

    def __init__(self, offsets: tuple[int, ...]) -> None:
        super().__init__()
        self.depth = max(offsets)
        self.register_buffer("schedule", torch.tensor(memory_table(offsets)))

    def forward(self, memory: Tensor, entry: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        history = torch.cat([memory, entry])
        row = self.schedule[frame.clamp(max=self.depth).long()][0]
        return history[row], history[1:], (frame + 1).clamp(max=LAST_FRAME)


class Selection(nn.Module):
    """STM: (R, N, D) entries -> the kept tokens' keys of all scales and values, (R, S, ·).

    As many as `tokens`: after the last the first come again.
    """

    row: Tensor
    order: Tensor

    def __init__(self, layout: Layout, tokens: int) -> None:
        super().__init__()
        self.columns, self.selection = layout.columns, layout.selection
        self.register_buffer("row", torch.arange(len(layout.config.references)).unsqueeze(1))
        self.register_buffer("order", torch.arange(tokens) % self.selection.keep)

    def forward(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        coarse, *rest = references.split(self.columns, dim=2)
        coarse = coarse.reshape(coarse.shape[0], self.selection.height * self.selection.width, -1)
        selected = select_tokens(query @ coarse.transpose(1, 2), self.selection).long()
        if len(self.order) > self.selection.keep:
            selected = selected[:, self.order]
        if self.selection.factor == 1:
            return references[self.row, selected].split(self.columns, dim=2)
        # Bilinear upsampling acts on positions, the product with the queries on channels, so
        # upsampling the keys upsamples the affinity along its key axes.
        grid = coarse.transpose(1, 2).unflatten(2, (self.selection.height, self.selection.width))
        finer = F.interpolate(
            grid, scale_factor=self.selection.factor, mode="bilinear", align_corners=False
        )
        tokens = torch.cat([finer.flatten(2).transpose(1, 2), *rest], dim=2)
        return tokens[self.row, selected].split([finer.shape[1], *self.columns[1:]], dim=2)


class Affinity(nn.Module):
    """Kept keys (R, S, C) against a grid of queries (1, h·w, C): (R, S, h, w).

    Without SAR there is no conv to take the √C that the queries gave up, so it is put back here.
    """

    def __init__(self, grid: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.grid, self.scale = grid, channels**0.5

    def forward(self, keys: Tensor, queries: Tensor) -> Tensor:
        maps = (keys @ queries.transpose(1, 2)).unflatten(2, self.grid)
        return maps if self.scale == 1 else maps * self.scale


class Aggregation(nn.Module):
    """One step of MAA: upsample the coarser maps, add, refine."""

    def __init__(self, block: nn.Module, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.refine = over_tokens(block, tokens, grid)

    def forward(self, coarser: Tensor, maps: Tensor) -> Tensor:
        coarser = resize(coarser, maps.shape[2:], align_corners=True)
        if coarser.shape != maps.shape:  # without SAR a raw map joins every channel
            maps = maps.repeat_interleave(coarser.shape[1] // maps.shape[1], dim=1)
        return self.refine(coarser + maps)


class TokenNorm(nn.Module):
    """GroupNorm(1) of every token's own maps, (R, S·C, h, w), as a LayerNorm over C·h·w.

    Both take mean and variance over all that a token has; a LayerNorm scales position by position,
    so each channel's γ and β are written out over its h·w positions.
    """

    def __init__(self, norm: nn.GroupNorm, eps: float, tokens: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.tokens, positions = tokens, grid[0] * grid[1]
        self.norm = nn.LayerNorm(norm.num_channels * positions, eps=eps)
        self.norm.weight.data = norm.weight.detach().repeat_interleave(positions)
        self.norm.bias.data = norm.bias.detach().repeat_interleave(positions)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(maps.reshape(maps.shape[0], self.tokens, -1)).view(maps.shape)


def over_tokens(
    block: nn.Module, tokens: int, grid: tuple[int, int], channels: int = 1
) -> nn.Sequential:
    """A `Refinement` block for tokens on the channel axis: (R, S·in, h, w) -> (R, S·out, h, w).

    `channels` is C of the tokens whose affinities come in divided by √C.
    """
    assert isinstance(block, Refinement)
    layers: list[nn.Module] = []
    for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
        assert isinstance(norm, nn.GroupNorm)
        folded, eps = fold_affinity_scale(affine(conv), norm.eps, channels)
        layers += [_repeated_conv(folded, tokens), TokenNorm(norm, eps, tokens, grid), nn.ReLU()]
        channels = 1
    return nn.Sequential(*layers)


def _repeated_conv(folded: Affine, tokens: int) -> nn.Conv2d:
    """The same conv for every token: a grouped conv with the weights repeated."""
    outputs, inputs, kernel, _ = folded.weight.shape
    conv = nn.Conv2d(tokens * inputs, tokens * outputs, kernel, padding=kernel // 2, groups=tokens)
    conv.weight = nn.Parameter(folded.weight.repeat(tokens, 1, 1, 1))
    conv.bias = nn.Parameter(folded.bias.repeat(tokens))
    return conv
