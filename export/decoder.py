"""The stateful decoder graph in its plain form, for export: Recall → STM → SAR, MAA → retrieval.

Kept tokens are channels, (R, S, h, w), where the reference model has them on the batch axis
(docs/algebra.md, lemma 6). With B streams R counts the references of all, those of a stream one
after the other.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.bundle.manifest import Output
from mrcfa.export.groups import Groups
from mrcfa.export.mask import GatheredMask
from mrcfa.export.precision import widened
from mrcfa.export.refinement import (
    Affinity,
    MapNorm,
    QueriesByScale,
    Refine,
    TokenGroup,
    Topped,
    steps_of,
    upsampled,
)
from mrcfa.export.repeated import Repeated, Spec
from mrcfa.export.select_tokens import select_tokens
from mrcfa.export.tensors import entry_columns, selection
from mrcfa.model.config import Config
from mrcfa.model.frames import resize
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.schedule import memory_table

LAST_FRAME = 2**30
"""The frame number saturates here; int32 would overflow at twice as many."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    def __init__(
        self, model: MRCFA, frame: tuple[int, int], output: Output, groups: Groups
    ) -> None:
        super().__init__()
        config = self.config = model.config
        self.groups = groups
        self.recall, self.stm = Recall(config.references), STM(config)
        group = Group(model, groups.tokens)
        self.queries = QueriesByScale(config, group.kernels)
        self.group = Repeated(group)
        self.scores = Scores(config.grid(4))
        self.mask: nn.Module | None = None
        if output is Output.MASK:
            self.mask = GatheredMask(config.classes, config.grid(4), config.size, frame)

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.config.used_strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        kept = self.stm(asked[32], references)
        images = self.queries(asked)
        logits = self.scores(base, list(self._retrieved(images, kept, len(base))))
        answers = [logits] if self.mask is None else [logits, self.mask(logits)]
        return memory_out, frame_out, *answers

    def _retrieved(
        self, images: Sequence[Tensor], kept: Sequence[Tensor], streams: int
    ) -> Iterator["Retrieved"]:
        """What the references say, all at once or one after the other."""
        done: Retrieved | None = None
        for reference in self.groups.references(kept, streams):
            found: Retrieved | None = None
            for *keys, values in self.groups.split(reference):
                if done is not None:
                    keys = [done.before(each) for each in keys]
                new = Retrieved(*self.group(*images, *keys, values))
                done = found = new if found is None else found.merged(new)
            assert found is not None
            yield found


class Group(TokenGroup):
    """(queries…, keys…, values) -> `Retrieved`, by the tokens' refined affinities."""

    def __init__(self, model: MRCFA, tokens: int) -> None:
        config, refinement = model.config, model.refinement
        super().__init__(config)
        for stride in refinement.strides:
            name, width = str(stride), config.width(stride)
            self.kernels[stride] = None
            if name in refinement.sar:
                first, *rest = steps_of(refinement.sar[name], width)
                self.kernels[stride] = first.conv.weight
                self.sar[name] = nn.Sequential(MapNorm(first), *Refine(rest, tokens))
            if name in refinement.maa:
                steps = steps_of(refinement.maa[name])
                self.maa[name] = Refine(steps, tokens, stride == config.output_stride)
            self.affinity[name] = Affinity(config.grid(stride), 1 if name in self.sar else width)
        self.retrieval = Retrieval(config.kept)

    def forward(self, *inputs: Tensor) -> "Retrieved":
        *parts, values = inputs
        found: Retrieved = self.retrieval(self._refined(parts), values)
        return found

    def answers(self, *inputs: Tensor) -> list[Spec]:
        *_, values = inputs
        positions = self.config.tokens_at(self.config.output_stride)
        channels = (1, 1, self.config.classes)
        return [Spec((len(values), each, positions), torch.float32) for each in channels]

    def _refined(self, parts: Sequence[Tensor]) -> Topped:
        """SAR at every scale, MAA from the coarsest to the finest."""
        refined: Tensor | Topped | None = None
        for name, each in self.maps_by_scale(parts):
            maps = _side_by_side(each)
            if name in self.sar:
                maps = self.sar[name](maps)
            if isinstance(refined, Tensor):
                maps = self.maa[name](_added(upsampled(refined), maps))
            refined = maps
        if isinstance(refined, Topped):
            return refined
        assert refined is not None
        grid = self.config.grid(self.config.output_stride)
        return Topped.of(resize(refined, grid, align_corners=True))


def _side_by_side(maps: Sequence[Tensor]) -> Tensor:
    """C tensors (R, S, h, w) as one, (R, S·C, h, w)."""
    return maps[0] if len(maps) == 1 else torch.stack(list(maps), dim=2).flatten(1, 2)


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
    """(R, N, D) entries -> the kept tokens' keys of all scales and values, (R, S, ·).

    Tokens come in any order: TopK's here, ascending in the plugin (docs/algebra.md, lemma 6).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.columns, self.call = entry_columns(config), selection(config)

    def forward(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        coarse, *rest = references.split(self.columns, dim=2)
        coarse = coarse.reshape(coarse.shape[0], self.call.height * self.call.width, -1)
        affinity = for_references(query, len(coarse)) @ coarse.transpose(1, 2)
        selected = self.chosen(select_tokens(affinity, self.call).long())
        row = torch.arange(len(references)).unsqueeze(1)
        if self.call.factor == 1:
            return references[row, selected].split(self.columns, dim=2)
        finer = self._upsampled(coarse)
        tokens = torch.cat([finer, *rest], dim=2)
        return tokens[row, selected].split([finer.shape[2], *self.columns[1:]], dim=2)

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


def for_references(queries: Tensor, references: int) -> Tensor:
    """Queries (B, n, C), once for each of R references; the only stream's are broadcast."""
    streams = len(queries)
    return queries if streams == 1 else queries.repeat_interleave(references // streams, dim=0)


def summed_by_stream(parts: Tensor, streams: int) -> Tensor:
    """What the references say, (R, …), summed over those of each stream: (B, …)."""
    if streams == 1:
        return parts.sum(dim=0, keepdim=True)
    return parts.unflatten(0, (streams, -1)).sum(dim=1)


class Retrieved(NamedTuple):
    """Of the tokens so far, at every position: what a softmax needs to go on with further ones."""

    lowest: Tensor
    """(R, 1, h·w), minus the largest map."""
    totals: Tensor
    """(R, 1, h·w), the sum of exponentials."""
    sums: Tensor
    """(R, C, h·w), the values weighted by them."""

    def merged(self, other: "Retrieved") -> "Retrieved":
        """With those of further tokens of the same references (docs/algebra.md, lemma 16)."""
        least = torch.minimum(other.lowest, self.lowest)
        old, new = (least - self.lowest).exp(), (least - other.lowest).exp()
        return Retrieved(
            least, old * self.totals + new * other.totals, old * self.sums + new * other.sums
        )

    def before(self, keys: Tensor) -> Tensor:
        """The keys of the next group, as they are, plus a zero that is known once this one is done.

        TensorRT would run independent groups side by side, and hold the maps of all.
        """
        largest = self.sums.amax(dim=(0, 1, 2))
        nothing = torch.minimum(largest.relu(), (-largest).relu())
        return keys + nothing.to(keys.dtype)


class Retrieval(nn.Module):
    """(R, s, h, w) maps, (R, s, C) values -> `Retrieved`.

    Softmax over the tokens of each reference, its division after the product (docs/algebra.md,
    lemma 10). Values are class scores, divided by R already (lemma 4).
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.shift = math.ceil(math.log2(tokens)) * math.log(2)

    def forward(self, topped: Topped, values: Tensor) -> Retrieved:
        maps, lowest = (each.flatten(2) for each in topped)
        exponentials = (widened(maps) + (lowest - self.shift)).exp().to(values.dtype)
        totals = widened(exponentials).sum(dim=1, keepdim=True)
        sums = widened(values.transpose(1, 2) @ exponentials)
        return Retrieved(lowest, totals, sums)


class Scores(nn.Module):
    """(B, C, h, w) base, and what its references say -> (B, C, H/4, W/4) logits."""

    def __init__(self, quarter: tuple[int, int]) -> None:
        super().__init__()
        self.quarter = quarter

    def forward(self, base: Tensor, found: Sequence[Retrieved]) -> Tensor:
        scores = widened(base)
        for each in found:
            retrieved = summed_by_stream(each.sums / each.totals, len(base))
            scores = scores + retrieved.view(base.shape)
        scores = scores.to(base.dtype)
        return resize(scores, self.quarter)
