"""The decoder as ONNX Runtime on CPUs wants it: `export.decoder` in another order of work.

One reference after the other, so that its maps stay in the cache; classes on the last axis; and
tokens that fill whole blocks of channels.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.bundle.manifest import Output
from mrcfa.export.decoder import STM, Recall
from mrcfa.export.groups import Groups
from mrcfa.export.ort_cpu.refinement import Aggregation, Maps, first_step, layers
from mrcfa.export.ort_cpu.retrieval import (
    ClassesFirst,
    LastAxisMask,
    LastAxisRetrieval,
    LastAxisScores,
    Retrieved,
    exponent_offset,
)
from mrcfa.export.refinement import Affinity, QueriesByScale, TokenGroup, steps_of
from mrcfa.export.repeated import Repeated, Spec
from mrcfa.model.config import Config
from mrcfa.model.frames import resize
from mrcfa.model.mrcfa import MRCFA

BLOCK = 16
"""ONNX Runtime's fast layout is for whole blocks of channels, 8 or 16 on most CPUs."""


class OrtCpuDecoder(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    counted: Tensor

    def __init__(
        self, model: MRCFA, frame: tuple[int, int], output: Output, groups: Groups
    ) -> None:
        super().__init__()
        config = self.config = model.config
        self.groups = groups
        padded = -(-config.kept // groups.tokens) * groups.tokens
        self.recall = Recall(config.references)
        self.stm = PaddedSTM(config, padded)
        counted = (torch.arange(padded) < config.kept).double().view(1, padded, 1)
        self.register_buffer("counted", counted)
        group = CpuGroup(model, groups.tokens)
        self.queries = QueriesByScale(config, group.kernels)
        self.group = Repeated(group)
        self.scores = LastAxisScores(config.grid(4))
        self.logits = ClassesFirst()
        self.mask = LastAxisMask(config.size, frame) if output is Output.MASK else None

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.config.used_strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = self.stm(asked[32], references)
        kept = [*keys, F.pad(values, (0, 1), value=1.0) * self.counted]
        images = self.queries(asked)
        logits = self.scores(base, list(self._retrieved(images, kept)))
        answers = [self.logits(logits)] if self.mask is None else [logits, self.mask(logits)]
        return memory_out, frame_out, *answers

    def _retrieved(self, images: Sequence[Tensor], kept: Sequence[Tensor]) -> Iterator[Tensor]:
        """What each reference says; see `LastAxisRetrieval`."""
        for reference in self.groups.references(kept, streams=1):
            found: Retrieved | None = None
            for each in self.groups.split(reference):
                new = Retrieved(*self.group(*images, *each))
                found = new if found is None else found.merged(new)
            assert found is not None
            yield found.sums


class CpuGroup(TokenGroup):
    """`export.decoder.Group` of one reference: (queries…, keys…, values) -> `Retrieved`."""

    def __init__(self, model: MRCFA, tokens: int) -> None:
        config, refinement = model.config, model.refinement
        super().__init__(config)
        for stride in refinement.strides:
            name, grid, width = str(stride), config.grid(stride), config.width(stride)
            self.kernels[stride] = None
            if name in refinement.sar:
                first, *rest = steps_of(refinement.sar[name], width)
                self.kernels[stride], norm = first_step(first, tokens, grid)
                self.sar[name] = nn.Sequential(norm, *layers(rest, tokens, grid))
            if name in refinement.maa:
                steps = steps_of(refinement.maa[name])
                self.maa[name] = Aggregation(nn.Sequential(*layers(steps, tokens, grid)))
            self.affinity[name] = Affinity(grid, 1 if name in self.sar else width)
        self.retrieval = LastAxisRetrieval(exponent_offset(model))

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        *parts, values = inputs
        found = self.retrieval(self._refined(parts), values)
        return [each for each in found if each is not None]

    def answers(self, *inputs: Tensor) -> list[Spec]:
        *_, values = inputs
        positions = self.config.tokens_at(self.config.output_stride)
        channels = [self.config.classes + 1, *([1] if self.retrieval.offset is None else [])]
        return [Spec((1, positions, each), values.dtype) for each in channels]

    def _refined(self, parts: Sequence[Tensor]) -> Tensor:
        """SAR and MAA of a reference's tokens: (1, s, h·w) on the finest grid."""
        refined: Maps | None = None
        for name, each in self.maps_by_scale(parts):
            maps = Maps(each)
            if name in self.sar:
                maps = self.sar[name](maps)
            refined = maps if refined is None else self.maa[name](refined, maps)
        assert refined is not None
        (finest,) = refined.divided()
        grid = self.config.grid(self.config.output_stride)
        return resize(finest, grid, align_corners=True).flatten(2)


class PaddedSTM(STM):
    """`STM`, padded to `tokens` tokens: after the last kept one the first come again.

    The padding's values are multiplied by zero (docs/algebra.md, lemma 6).
    """

    order: Tensor

    def __init__(self, config: Config, tokens: int) -> None:
        super().__init__(config)
        self.register_buffer("order", torch.arange(tokens) % config.kept)

    def chosen(self, selected: Tensor) -> Tensor:
        return selected if len(self.order) == selected.shape[1] else selected[:, self.order]
