"""The arrangement for ONNX Runtime on CPUs."""

import onnx
from torch import nn

from mrcfa.bundle.manifest import Output
from mrcfa.export.arrangement import Arrangement, Size
from mrcfa.export.encoder import EncoderGraph
from mrcfa.export.groups import DecoderMemory, Groups
from mrcfa.export.ort_cpu.attention import slice_attention
from mrcfa.export.ort_cpu.corners import with_corner_mask
from mrcfa.export.ort_cpu.decoder import BLOCK, OrtCpuDecoder
from mrcfa.export.tensors import entry_columns
from mrcfa.model.config import Config
from mrcfa.model.mit import Block, MiT
from mrcfa.model.mrcfa import MRCFA

SLICED_STAGES = 2
"""The first ones, whose scores outgrow a CPU's caches."""


class OrtCpu(Arrangement):
    name = "ort_cpu"
    classes_last = True
    streams_in_turn = True

    def encoder(self, model: MRCFA, frame: Size) -> nn.Module:
        return sliced(EncoderGraph(model))

    def decoder(
        self, model: MRCFA, frame: Size, output: Output, groups: Groups | None = None
    ) -> nn.Module:
        if groups is None:
            groups = Groups(True, -(-model.config.kept // BLOCK) * BLOCK)
        return OrtCpuDecoder(model, frame, output, groups)

    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory:
        """As ONNX Runtime takes it, one stream at a time.

        A step of refinement has each channel four times, and one map more. Beside them the memory
        before and after, queries, sums of every reference, and logits twice as large either way.
        """
        positions = config.tokens_at(config.output_stride)
        history = (config.depth + 1) * config.tokens * sum(entry_columns(config))
        sums = config.classes * (8 + 2 * len(config.references))
        queries = 3 * config.width(config.strides[-1])
        return DecoderMemory(
            config,
            fixed=itemsize * (2 * history + positions * (sums + queries)),
            each=itemsize * positions * (4 * config.affinity_channels + 1),
            itemsize=itemsize,
            block=BLOCK,
            one_by_one=True,
        )

    def finished(self, decoder: onnx.ModelProto, classes_last: bool) -> onnx.ModelProto:
        return with_corner_mask(decoder, classes_last)


def sliced(graph: nn.Module) -> nn.Module:
    """An encoder graph whose first stages attend in slices."""
    encoder = graph.encoder
    assert isinstance(encoder, MiT)
    for stage in list(encoder.stages)[:SLICED_STAGES]:
        for block in stage.modules():
            if isinstance(block, Block):
                slice_attention(block)
    return graph


ORT_CPU = OrtCpu()
