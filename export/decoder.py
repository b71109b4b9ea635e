"""The stateful decoder graph: a frame's queries and the memory in, mask and memory out. For export.

Kept tokens are channels here, (R, S, h, w), where the reference model has them on the batch axis:
the weights are shared by all tokens, so each conv of SAR and MAA is one grouped conv over them, and
its GroupNorm(1) is a GroupNorm with one group per token. Their order does not matter, because the
softmax and the product that follow reduce over them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import Affine, affine, fold_affinity_scale
from export.layout import Layout
from export.precision import set_precision, widely
from export.select_tokens import select_tokens
from mrcfa.affinity import Refinement
from mrcfa.model import MRCFA
from mrcfa.schedule import memory_table

LAST_FRAME = 2**30
"""The frame number saturates here, years before int32 would overflow."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits, mask if asked for).

    Only one of the last two is an output of the ONNX graph.
    """

    def __init__(
        self, model: MRCFA, layout: Layout, frame: tuple[int, int], output: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        config = model.config
        self.strides, self.scales = layout.strides, model.refinement.strides
        self.recall = Recall(config.references)
        self.stm = Selection(layout)
        self.affinity, self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        tokens = layout.selection.keep
        for stride in self.scales:
            name, channels = str(stride), config.width(stride)
            refined = name in model.refinement.sar
            self.affinity[name] = Affinity(layout.grid(stride), 1 if refined else channels)
            if refined:
                self.sar[name] = over_tokens(model.refinement.sar[name], tokens, channels)
            if name in model.refinement.maa:
                self.maa[name] = Aggregation(model.refinement.maa[name], tokens)
        self.retrieval = Retrieval(layout.grid(config.output_stride))
        self.quarter = Resized(layout.grid(4))
        self.mask = Mask(config.size, frame) if output == "mask" else None
        set_precision(self, dtype)

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = self.stm(asked[32], references)
        kept = dict(zip(self.strides, keys, strict=True))
        refined = None
        for stride in self.scales:
            name = str(stride)
            maps = self.affinity[name](kept[stride], asked[stride])
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.maa[name](refined, maps)
        logits = self.quarter(self.retrieval(base, refined, values))
        answers = (logits,) if self.mask is None else (logits, self.mask(logits))
        return memory_out, frame_out, *answers


class Recall(nn.Module):
    """The schedule as a table: which R of the last M + 1 entries serve this frame."""

    def __init__(self, offsets: tuple[int, ...]) -> None:
        super().__init__()
        self.depth = max(offsets)
        self.register_buffer("schedule", torch.tensor(memory_table(offsets)))

    def forward(self, memory: Tensor, entry: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        history = torch.cat([memory, entry])
        row = self.schedule[frame.clamp(max=self.depth).long()][0]
        return history[row], history[1:], (frame + 1).clamp(max=LAST_FRAME)


class Selection(nn.Module):
    """STM: (R, N, D) entries -> the kept tokens' keys of every scale and their values, (R, S, ·)."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.columns, self.selection = layout.columns, layout.selection
        self.register_buffer("row", torch.arange(len(layout.config.references)).unsqueeze(1))

    def forward(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        coarse, *rest = references.split(self.columns, dim=2)
        coarse = coarse.reshape(coarse.shape[0], self.selection.height * self.selection.width, -1)
        selected = select_tokens(query @ coarse.transpose(1, 2), self.selection).long()
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

    def __init__(self, block: nn.Module, tokens: int) -> None:
        super().__init__()
        self.refine = over_tokens(block, tokens)

    def forward(self, coarser: Tensor, maps: Tensor) -> Tensor:
        coarser = resize(coarser, maps.shape[2:], align_corners=True)
        if coarser.shape != maps.shape:  # without SAR a raw map joins every channel
            maps = maps.repeat_interleave(coarser.shape[1] // maps.shape[1], dim=1)
        return self.refine(coarser + maps)


class Retrieval(nn.Module):
    """Softmax over each reference's tokens, times their values, on top of the frame's own scores.

    Σ over references and tokens is one product, (classes, R·S) × (R·S, h·w).
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, base: Tensor, refined: Tensor, values: Tensor) -> Tensor:
        refined = resize(refined, self.grid, align_corners=True)
        weights = widely(lambda maps: maps.softmax(dim=1), refined).flatten(2).flatten(0, 1)
        return base + (values.flatten(0, 1).t() @ weights).view_as(base)


class Resized(nn.Module):
    """Scores on the finest grid -> logits at 1/4."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, logits: Tensor) -> Tensor:
        return resize(logits, self.size)


class Mask(nn.Module):
    """Logits at 1/4 -> H×W -> the frame's own size, and only then the argmax."""

    def __init__(self, size: tuple[int, int], frame: tuple[int, int]) -> None:
        super().__init__()
        self.sizes = (size, frame)

    def forward(self, logits: Tensor) -> Tensor:
        for size in self.sizes:
            logits = resize(logits, size)
        return logits.argmax(dim=1).to(torch.uint8)


def over_tokens(block: nn.Module, tokens: int, channels: int = 1) -> nn.Sequential:
    """A `Refinement` block for tokens on the channel axis: (R, S·in, h, w) -> (R, S·out, h, w).

    `channels` is C of the tokens whose affinities come in divided by √C.
    """
    assert isinstance(block, Refinement)
    layers: list[nn.Module] = []
    for layer in block:
        if isinstance(layer, nn.Conv2d):
            layers.append(_repeated_conv(fold_affinity_scale(affine(layer), channels), tokens))
            channels = 1
        elif isinstance(layer, nn.GroupNorm):
            norm = nn.GroupNorm(tokens, tokens * layer.num_channels, eps=layer.eps)
            norm.weight.data = layer.weight.detach().repeat(tokens)
            norm.bias.data = layer.bias.detach().repeat(tokens)
            layers.append(norm)
        else:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def _repeated_conv(folded: Affine, tokens: int) -> nn.Conv2d:
    """The same conv for every token: a grouped conv with the weights repeated."""
    outputs, inputs, kernel, _ = folded.weight.shape
    conv = nn.Conv2d(tokens * inputs, tokens * outputs, kernel, padding=kernel // 2, groups=tokens)
    conv.weight = nn.Parameter(folded.weight.repeat(tokens, 1, 1, 1))
    conv.bias = nn.Parameter(folded.bias.repeat(tokens))
    return conv


def resize(maps: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Bilinear, or nothing where the size is right already."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)
