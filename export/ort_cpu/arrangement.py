"""The arrangement for ONNX Runtime on CPUs.

References are processed one after the other, so that the maps of one stay in the cache; classes are
on the last axis; and tokens fill whole blocks of channels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.export.arrangement import Arrangement
from mrcfa.export.decoder import STM, DecoderGraph, GroupDecoder
from mrcfa.export.encoder import FrameEncoder
from mrcfa.export.grouping import DecoderMemory, Grouping
from mrcfa.export.interpolation import Size
from mrcfa.export.ort_cpu.attention import slice_attention
from mrcfa.export.ort_cpu.refinement import Maps, SplitMAA, layers, new_sar
from mrcfa.export.ort_cpu.retrieval import (
    ClassesFirst,
    LastAxisMask,
    LastAxisRetrieval,
    LastAxisScores,
    LastAxisSoftmax,
    exponent_offset,
)
from mrcfa.export.refinement import SAR, Step
from mrcfa.export.repeated import Spec
from mrcfa.export.tensors import entry_columns
from mrcfa.model.config import Config
from mrcfa.model.frames import Normalise, normaliser, resize
from mrcfa.model.input_format import InputFormat
from mrcfa.model.mit import Block, MiT
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer

BLOCK = 16
"""ONNX Runtime's fast layout is for whole blocks of channels, 8 or 16 on most CPUs."""
SLICED_STAGES = 2
"""The first ones, whose attention scores are larger than a CPU's caches."""


class OrtCpu(Arrangement):
    name = "ort_cpu"
    classes_last = True
    one_stream = True
    corner_mask = True

    def pixels(self, frame: Size, size: Size, form: InputFormat) -> Normalise:
        return normaliser(size, form)

    def adapt(self, encoder: FrameEncoder, model: SegFormer) -> FrameEncoder:
        """Attention in slices in the first stages."""
        assert isinstance(encoder.encoder, MiT)
        for stage in list(encoder.encoder.stages)[:SLICED_STAGES]:
            for block in stage.modules():
                if isinstance(block, Block):
                    slice_attention(block)
        return encoder

    def mrcfa_decoder(
        self, model: MRCFA, grouping: Grouping, mask: nn.Module | None
    ) -> DecoderGraph:
        return OrtCpuDecoder(model, grouping, mask)

    def mask(self, config: Config, frame: Size) -> nn.Module:
        return LastAxisMask(config.size, frame)

    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory:
        """The memory that ONNX Runtime takes for one stream.

        A step of refinement holds each channel four times, and one map more. The fixed part is the
        memory before and after, queries, sums of every reference, and logits of twice the size in
        each direction.
        """
        positions = config.tokens_at(config.output_stride)
        history = (config.depth + 1) * config.tokens * sum(entry_columns(config))
        sums = config.classes * (8 + 2 * len(config.references))
        queries = 3 * config.width(config.strides[-1])
        return DecoderMemory(
            config,
            fixed=itemsize * (2 * history + positions * (sums + queries)),
            per_map=itemsize * positions * (4 * config.affinity_channels + 1),
            itemsize=itemsize,
            block=BLOCK,
            one_by_one=True,
        )


class OrtCpuDecoder(DecoderGraph):
    """`DecoderGraph` whose values have a column of ones beside them; padding tokens count zero."""

    counted: Tensor

    def __init__(self, model: MRCFA, grouping: Grouping, mask: nn.Module | None) -> None:
        config = model.config
        padded = -(-config.kept // grouping.tokens) * grouping.tokens
        stm, group = STM(config, padded), OrtCpuGroupDecoder(model, grouping.tokens)
        scores = LastAxisScores(config.grid(4))
        super().__init__(config, grouping, stm, group, LastAxisSoftmax, scores, mask)
        self.logits = ClassesFirst()
        counted = (torch.arange(padded) < config.kept).double().view(1, padded, 1)
        self.register_buffer("counted", counted)

    def select(self, query: Tensor, references: Tensor) -> Sequence[Tensor]:
        *keys, values = super().select(query, references)
        return [*keys, F.pad(values, (0, 1), value=1.0) * self.counted]


class OrtCpuGroupDecoder(GroupDecoder):
    """`GroupDecoder` of one reference, with each of a token's C maps in a tensor of its own."""

    scope = "CpuGroup"

    def __init__(self, model: MRCFA, tokens: int) -> None:
        super().__init__(model, tokens, LastAxisRetrieval(exponent_offset(model)))

    def outputs(self, *inputs: Tensor) -> list[Spec]:
        *_, values = inputs
        positions = self.config.tokens_at(self.config.output_stride)
        channels = [self.config.classes + 1, *([1] if self.retrieval.offset is None else [])]
        return [Spec((1, positions, count), values.dtype) for count in channels]

    def new_sar(self, steps: Sequence[Step], tokens: int, grid: Size) -> SAR:
        return new_sar(steps, tokens, grid)

    def new_maa(self, steps: Sequence[Step], tokens: int, grid: Size) -> SplitMAA:
        return SplitMAA(nn.Sequential(*layers(steps, tokens, grid)))

    def joined(self, affinities: Sequence[Tensor]) -> Maps:
        return Maps(affinities)

    def aggregated(self, maa: nn.Module, coarser: Maps, maps: Maps) -> Maps:
        refined: Maps = maa(coarser, maps)
        return refined

    def at_finest(self, refined: Maps) -> Tensor:
        """(1, s, h·w)."""
        (finest,) = refined.divided()
        return resize(finest, self.finest, align_corners=True).flatten(2)


ORT_CPU = OrtCpu()
