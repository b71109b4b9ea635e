"""The stateful decoder graph, for export: queries and the memory in, mask and memory out."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.layout import Layout
from export.precision import make_half
from export.refinement import (
    Aggregation,
    GroupedLayer,
    LoneNorm,
    Maps,
    SplitLayer,
    repeated_conv,
    steps_of,
)
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
from mrcfa.model import MRCFA
from mrcfa.schedule import memory_table

BLOCK = 16
"""ONNX Runtime's fast layout is for whole blocks of channels, 8 or 16 on most CPUs."""
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
        layer: type[nn.Module] = GroupedLayer if shift is None else SplitLayer
        self.recall = Recall(config.references)
        self.stm = Selection(layout, tokens)
        self.queries, self.affinity = nn.ModuleDict(), nn.ModuleDict()
        self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict()
        for stride in self.scales:
            name, grid, channels = str(stride), layout.grid(stride), config.width(stride)
            kernel: Tensor | None = None
            if name in model.refinement.sar:
                first, *rest = steps_of(model.refinement.sar[name], channels)
                kernel = None if shift is None else first.conv.weight
                start: nn.Module = (layer if kernel is None else LoneNorm)(first, tokens, grid)
                self.sar[name] = nn.Sequential(start, *(layer(each, tokens, grid) for each in rest))
            if name in model.refinement.maa:
                steps = steps_of(model.refinement.maa[name])
                refine = nn.Sequential(*(layer(step, tokens, grid) for step in steps))
                self.maa[name] = Aggregation(refine)
            self.queries[name] = Queries(grid, channels, kernel)
            self.affinity[name] = Affinity(grid, 1 if name in self.sar else channels)
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
        asked = {stride: self.queries[str(stride)](asked[stride]) for stride in self.scales}
        weights = [
            self._weights(asked, dict(zip(self.strides, kept, strict=True)))
            for kept in zip(*keys, strict=True)
        ]
        logits = self.retrieval(base, weights, values)
        answers = [self.logits(logits)] if self.output == "logits" else [logits, self.mask(logits)]
        return memory_out, frame_out, *answers

    def _weights(self, asked: dict[int, Tensor], kept: dict[int, Tensor]) -> Tensor:
        """SAR and MAA for some references: (r, S, h·w) on the finest grid."""
        refined: Maps | None = None
        for stride in self.scales:
            name = str(stride)
            maps = Maps([self.affinity[name](kept[stride], asked[stride])])
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.maa[name](refined, maps)
        assert refined is not None
        assert refined.spread is None
        (finest,) = refined.tensors
        return resize(finest, self.finest, align_corners=True).flatten(2)


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


class Queries(nn.Module):
    """A grid's queries as the product with the keys wants them: (1, h·w, C) -> (1, C, h·w).

    On CPUs SAR's first conv is done here, once for all references: it acts on positions, alike for
    all tokens, and the product on channels, so they commute.
    """

    def __init__(self, grid: tuple[int, int], channels: int, kernel: Tensor | None) -> None:
        super().__init__()
        self.grid = grid
        self.conv = None if kernel is None else repeated_conv(kernel, channels)

    def forward(self, queries: Tensor) -> Tensor:
        queries = queries.transpose(1, 2)
        if self.conv is None:
            return queries
        return self.conv(queries.unflatten(2, self.grid)).flatten(2)


class Affinity(nn.Module):
    """Kept keys (R, S, C) against a grid of queries (1, C, h·w): (R, S, h, w).

    Without SAR there is no conv to take the √C that the queries gave up, so it is put back here.
    """

    def __init__(self, grid: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.grid, self.scale = grid, channels**0.5

    def forward(self, keys: Tensor, queries: Tensor) -> Tensor:
        maps = (keys @ queries).unflatten(2, self.grid)
        return maps if self.scale == 1 else maps * self.scale
