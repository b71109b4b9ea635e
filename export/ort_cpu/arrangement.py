"""The arrangement for ONNX Runtime on CPUs."""

import onnx
from torch import nn

from export.arrangement import Arrangement, Fit, Size
from export.encoder import EncoderGraph
from export.ort_cpu.attention import slice_attention
from export.ort_cpu.corners import with_corner_mask
from export.ort_cpu.decoder import OrtCpuDecoder
from export.ort_cpu.retrieval import LARGEST_EXPONENT, largest_map_value
from mrcfa.manifest import Output
from mrcfa.model.mit import Block, MiT
from mrcfa.model.mrcfa import MRCFA

SLICED_STAGES = 2
"""The first ones, whose scores outgrow a CPU's caches."""


class OrtCpu(Arrangement):
    name = "ort_cpu"
    classes_last = True
    streams_in_turn = True

    def fits(self, model: MRCFA) -> Fit:
        """Exponentials must fit FP32: the softmax is divided after the product with the values.

        See docs/algebra.md, lemma 10.
        """
        bound = largest_map_value(model)
        if bound is None:
            return Fit(False, "without SAR and MAA no norm bounds the affinities")
        if bound > 2 * LARGEST_EXPONENT:
            return Fit(
                False,
                f"affinities may reach {bound:.0f} at this size, and their exponentials fit FP32 "
                f"up to {2 * LARGEST_EXPONENT:.0f}",
            )
        return Fit(True)

    def encoder(self, model: MRCFA, frame: Size) -> nn.Module:
        return sliced(EncoderGraph(model))

    def decoder(self, model: MRCFA, frame: Size, output: Output) -> nn.Module:
        return OrtCpuDecoder(model, frame, output)

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
