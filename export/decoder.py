"""The stateful decoder graph in its plain form, for export: Recall → STM → SAR, MAA → retrieval.

Kept tokens are channels, (R, S, h, w), where the reference model has them on the batch axis
(docs/algebra.md, lemma 6).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.precision import widely
from export.refinement import Affinity, Refine, upsampled
from export.select_tokens import select_tokens
from export.tensors import entry_columns, selection
from mrcfa.manifest import Output
from mrcfa.model.config import Config
from mrcfa.model.frames import FullSizeMask, resize
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.schedule import memory_table

LAST_FRAME = 2**30
"""The frame number saturates here; int32 would overflow at twice as many."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    def __init__(self, model: MRCFA, frame: tuple[int, int], output: Output) -> None:
        super().__init__()
        config, refinement = model.config, model.refinement
        self.config, self.scales = config, refinement.strides
        self.recall = Recall(config.references)
        self.stm = STM(config)
        self.affinity, self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for stride in self.scales:
            name, grid, width = str(stride), config.grid(stride), config.width(stride)
            if name in refinement.sar:
                self.sar[name] = Refine(refinement.sar[name], config.kept, grid, channels=width)
            if name in refinement.maa:
                self.maa[name] = Refine(refinement.maa[name], config.kept, grid)
            self.affinity[name] = Affinity(grid, 1 if name in self.sar else width)
        self.retrieval = Retrieval(config.grid(4))
        self.mask = FullSizeMask(config.size, frame) if output is Output.MASK else None

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.config.used_strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = self.stm(asked[32], references)
        weights = self._weights(asked, dict(zip(self.config.used_strides, keys, strict=True)))
        logits = self.retrieval(base, weights, values)
        answers = [logits] if self.mask is None else [logits, self.mask(logits)]
        return memory_out, frame_out, *answers

    def _weights(self, asked: dict[int, Tensor], keys: dict[int, Tensor]) -> Tensor:
        """SAR at every scale, MAA from the coarsest to the finest: (R, S, h·w)."""
        refined: Tensor | None = None
        for stride in self.scales:
            name = str(stride)
            maps = self.affinity[name](keys[stride], asked[stride].transpose(1, 2))
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.maa[name](_added(upsampled(refined), maps))
        assert refined is not None
        grid = self.config.grid(self.config.output_stride)
        return resize(refined, grid, align_corners=True).flatten(2)


def _added(coarser: Tensor, maps: Tensor) -> Tensor:
    """Without SAR one raw map joins every channel of the coarser ones."""
    repeats = coarser.shape[1] // maps.shape[1]
    return coarser + (maps if repeats == 1 else maps.repeat_interleave(repeats, dim=1))


class Recall(nn.Module):
    """The schedule as a table: which R of the last M + 1 entries serve this frame."""

    schedule: Tensor

    def __init__(self, offsets: tuple[int, ...]) -> None:
        super().__init__()
        self.depth = max(offsets)
        self.register_buffer("schedule", torch.tensor(memory_table(offsets)))

    def forward(self, memory: Tensor, entry: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        """(1, M, N, D), (1, N, D), (1,) -> references (R, N, D), memory_out, frame_out."""
        history = torch.cat([memory.flatten(0, 1), entry])
        row = self.schedule[frame.clamp(max=self.depth).long()][0]
        return history[row], history[1:].unsqueeze(0), (frame + 1).clamp(max=LAST_FRAME)


class STM(nn.Module):
    """(R, N, D) entries -> the kept tokens' keys of all scales and values, (R, S, ·).

    Tokens come in any order: TopK's here, ascending in the plugin (docs/algebra.md, lemma 6).
    """

    row: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.columns, self.call = entry_columns(config), selection(config)
        self.register_buffer("row", torch.arange(len(config.references)).unsqueeze(1))

    def forward(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        coarse, *rest = references.split(self.columns, dim=2)
        coarse = coarse.reshape(coarse.shape[0], self.call.height * self.call.width, -1)
        selected = self.chosen(select_tokens(query @ coarse.transpose(1, 2), self.call).long())
        if self.call.factor == 1:
            return references[self.row, selected].split(self.columns, dim=2)
        finer = self._upsampled(coarse)
        tokens = torch.cat([finer, *rest], dim=2)
        return tokens[self.row, selected].split([finer.shape[2], *self.columns[1:]], dim=2)

    def chosen(self, selected: Tensor) -> Tensor:
        """The tokens that are gathered, from the selected ones."""
        return selected

    def _upsampled(self, coarse: Tensor) -> Tensor:
        """Keys (R, n, C) on the grid of the values, (R, N, C), bilinear.

        The reference model upsamples the affinities instead (docs/algebra.md, lemma 7).
        """
        grid = coarse.transpose(1, 2).unflatten(2, (self.call.height, self.call.width))
        factor = self.call.factor
        finer = F.interpolate(grid, scale_factor=factor, mode="bilinear", align_corners=False)
        return finer.flatten(2).transpose(1, 2)


class Retrieval(nn.Module):
    """(1, C, h, w) base, (R, S, h·w) maps, (R, S, C) values -> (1, C, H/4, W/4) logits.

    Softmax over the tokens of each reference. Values are class scores, divided by R already, so the
    sum over references and tokens is one product, (C, R·S) × (R·S, h·w) (docs/algebra.md, lemma 4).
    """

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, maps: Tensor, values: Tensor) -> Tensor:
        weights = widely(lambda x: x.softmax(dim=1), maps).flatten(0, 1)
        scores = base + (values.flatten(0, 1).t() @ weights).view_as(base)
        return resize(scores, self.quarter)
