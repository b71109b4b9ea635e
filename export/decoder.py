"""The stateful decoder graph: recall → select (STM) → groups (SAR, MAA) → merge → scores.

This module has the order of the steps. An arrangement supplies what depends on the device: norms,
the retrieval by a softmax, scores and mask.

Kept tokens are channels, (R, S, h, w), where the reference model has them on the batch axis
(docs/algebra.md, lemma 6). R counts the references of all streams, those of one stream side by
side.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.grouping import Grouping
from mrcfa.export.refinement import SAR, Affinity, QueriesByScale, Step, steps_of
from mrcfa.export.repeated import Repeated, Spec
from mrcfa.export.tensors import entry_columns, selection
from mrcfa.model.config import Config
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.schedule import memory_table

LAST_FRAME = 2**30
"""The frame number stops here: int32 would overflow at twice as many."""


class Softmax(Protocol):
    """A softmax over the tokens of the groups so far, times their values."""

    def merged(self, other: Any) -> "Softmax":
        """The softmax over both groups' tokens of the same references."""

    def before(self, keys: Tensor) -> Tensor:
        """The keys of the next group, which is computed after this one."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    def __init__(
        self,
        config: Config,
        grouping: Grouping,
        stm: "STM",
        group: "GroupDecoder",
        softmax: Callable[..., Softmax],
        scores: nn.Module,
        mask: nn.Module | None,
    ) -> None:
        super().__init__()
        self.config, self.grouping, self.softmax = config, grouping, softmax
        self.recall, self.stm = Recall(config.references), stm
        self.queries = QueriesByScale(config, group.kernels)
        self.group = Repeated(group, group.scope)
        self.scores, self.mask = scores, mask
        self.logits: nn.Module = nn.Identity()

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        entry, memory, frame = inputs[-3:]
        queries = dict(zip(reversed(self.config.used_strides), inputs[:-3], strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        kept = self.select(queries[32], references)
        images = self.queries(queries)
        logits = self.scores(base, list(self._retrieved(images, kept, len(base))))
        results = [self.logits(logits)] if self.mask is None else [logits, self.mask(logits)]
        return memory_out, frame_out, *results

    def select(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        """Keys of all scales and values of the kept tokens, (R, S, C)."""
        kept: Sequence[Tensor] = self.stm(query, references)
        return kept

    def _retrieved(
        self, images: Sequence[Tensor], kept: Sequence[Tensor], streams: int
    ) -> Iterator[Softmax]:
        """The softmax of all references at once, or of one after the other, groups merged."""
        done: Softmax | None = None
        for reference in self.grouping.references(kept, streams):
            merged: Softmax | None = None
            for *keys, values in self.grouping.groups(reference):
                if done is not None:
                    keys = [done.before(key) for key in keys]
                new = self.softmax(*self.group(*images, *keys, values))
                done = merged = new if merged is None else merged.merged(new)
            assert merged is not None
            yield merged


class GroupDecoder(nn.Module, ABC):
    """(queries…, keys…, values) of one group of kept tokens -> the tensors of its `Softmax`.

    Affinities of every scale are refined by SAR, and MAA merges the scales, coarse to fine. Queries
    (B, C, h·w) come once for each output of SAR's first conv, coarsest scale first; keys (R, s, C)
    come once for each scale.
    """

    scope: str
    """The first part of the names of the group's constants in the ONNX graph."""

    def __init__(self, model: MRCFA, tokens: int, retrieval: nn.Module) -> None:
        super().__init__()
        config, refinement = model.config, model.refinement
        self.config, self.finest = config, config.grid(config.output_stride)
        self.affinity, self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        self.kernels: dict[int, Tensor | None] = {}
        """By stride, the kernels of SAR's first conv, (C, 1, k, k); None without SAR."""
        for stride in refinement.strides:
            name, grid, width = str(stride), config.grid(stride), config.width(stride)
            self.kernels[stride] = None
            if name in refinement.sar:
                sar = self.new_sar(steps_of(refinement.sar[name], width), tokens, grid)
                self.sar[name], self.kernels[stride] = sar, sar.kernels
            if name in refinement.maa:
                self.maa[name] = self.new_maa(steps_of(refinement.maa[name]), tokens, grid)
            self.affinity[name] = Affinity(grid, 1 if name in self.sar else width)
        self.retrieval = retrieval

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        *parts, values = inputs
        refined: Any = None
        for name, affinities in self._affinities(parts):
            maps = self.joined(affinities)
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.aggregated(self.maa[name], refined, maps)
        found: Sequence[Tensor] = self.retrieval(self.at_finest(refined), values)
        return found

    def _affinities(self, parts: Sequence[Tensor]) -> Iterator[tuple[str, list[Tensor]]]:
        """The affinities of each scale, (R, s, h, w), with each of its queries."""
        strides = self.config.used_strides
        queries = iter(parts[: -len(strides)])
        keys = dict(zip(strides, parts[-len(strides) :], strict=True))
        for stride, kernels in self.kernels.items():
            affinity, count = self.affinity[str(stride)], 1 if kernels is None else len(kernels)
            yield str(stride), [affinity(keys[stride], query) for query in islice(queries, count)]

    @abstractmethod
    def outputs(self, *inputs: Tensor) -> list[Spec]:
        """Shapes and types of the outputs."""

    @abstractmethod
    def new_sar(self, steps: Sequence[Step], tokens: int, grid: tuple[int, int]) -> SAR: ...

    @abstractmethod
    def new_maa(self, steps: Sequence[Step], tokens: int, grid: tuple[int, int]) -> nn.Module: ...

    @abstractmethod
    def joined(self, affinities: Sequence[Tensor]) -> Any:
        """C affinities (R, s, h, w) as the maps that SAR and MAA refine."""

    @abstractmethod
    def aggregated(self, maa: nn.Module, coarser: Any, maps: Any) -> Any:
        """The coarser scale's maps, upsampled, and this scale's, added and refined."""

    @abstractmethod
    def at_finest(self, refined: Any) -> Any:
        """Refined maps on the finest grid, for the retrieval."""


class Recall(nn.Module):
    """The schedule as a table: picks R of the last M + 1 entries for a frame number."""

    schedule: Tensor

    def __init__(self, offsets: tuple[int, ...]) -> None:
        super().__init__()
        self.depth = max(offsets)
        self.register_buffer("schedule", torch.tensor(memory_table(offsets)))

    def forward(self, memory: Tensor, entry: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        """(B, M, N, D), (B, N, D), (B,) -> references (R, N, D), memory_out, frame_out."""
        rows = self.schedule[frame.clamp(max=self.depth).long()]
        frame_out = (frame + 1).clamp(max=LAST_FRAME)
        if len(frame) == 1:
            history = torch.cat([memory.flatten(0, 1), entry])
            return history[rows[0]], history[1:].unsqueeze(0), frame_out
        history = torch.cat([memory, entry.unsqueeze(1)], dim=1)
        stream = torch.arange(len(frame)).unsqueeze(1)
        return history[stream, rows].flatten(0, 1), history[:, 1:], frame_out


class STM(nn.Module):
    """Selective token masking: (R, N, D) entries -> keys of all scales and values, (R, S, C).

    Tokens come in any order: TopK's here, ascending in the plugin (docs/algebra.md, lemma 6). If
    there are more `tokens` than kept ones, the first kept ones are repeated after the last.
    """

    order: Tensor

    def __init__(self, config: Config, tokens: int) -> None:
        super().__init__()
        self.columns, self.selection = entry_columns(config), selection(config)
        self.register_buffer("order", torch.arange(tokens) % config.kept)

    def forward(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        coarse, *rest = references.split(self.columns, dim=2)
        coarse = coarse.reshape(coarse.shape[0], self.selection.height * self.selection.width, -1)
        affinity = for_references(query, len(coarse)) @ coarse.transpose(1, 2)
        selected = self.selection.indices(affinity).long()
        if len(self.order) > selected.shape[1]:
            selected = selected[:, self.order]
        row = torch.arange(len(references)).unsqueeze(1)
        if self.selection.factor == 1:
            return references[row, selected].split(self.columns, dim=2)
        finer = self._upsampled(coarse)
        tokens = torch.cat([finer, *rest], dim=2)
        return tokens[row, selected].split([finer.shape[2], *self.columns[1:]], dim=2)

    def _upsampled(self, coarse: Tensor) -> Tensor:
        """Keys (R, n, C) on the grid of the values, (R, N, C), bilinear.

        The reference model upsamples the affinities instead (docs/algebra.md, lemma 7).
        """
        grid = coarse.transpose(1, 2).unflatten(2, (self.selection.height, self.selection.width))
        factor = self.selection.factor
        finer = F.interpolate(grid, scale_factor=factor, mode="bilinear", align_corners=False)
        return finer.flatten(2).transpose(1, 2)


def for_references(queries: Tensor, references: int) -> Tensor:
    """Queries (B, n, C), once for each of R references; a single stream's are broadcast."""
    streams = len(queries)
    return queries if streams == 1 else queries.repeat_interleave(references // streams, dim=0)


def summed_by_stream(parts: Tensor, streams: int) -> Tensor:
    """(R, …) summed over the references of each stream: (B, …)."""
    if streams == 1:
        return parts.sum(dim=0, keepdim=True)
    return parts.unflatten(0, (streams, -1)).sum(dim=1)
