"""The arrangements of the paper's baselines: names and contract as MRCFA's, graphs of their own."""

from typing import Any

from torch import Tensor, nn

from export.arrangement import Arrangement, Size
from export.feature_pyramid import PyramidDecoder, PyramidEncoder
from export.ort_cpu.arrangement import ORT_CPU, sliced
from export.ort_cpu.retrieval import LastAxisMask
from export.plain import PLAIN
from export.segformer import Answer, SegFormerDecoder, SegFormerEncoder
from mrcfa.manifest import Output
from mrcfa.model.config import Method

_ENCODERS: dict[Method, type[nn.Module]] = {
    Method.SEGFORMER: SegFormerEncoder,
    Method.FEATURE_PYRAMID: PyramidEncoder,
}
_DECODERS: dict[Method, type[nn.Module]] = {
    Method.SEGFORMER: SegFormerDecoder,
    Method.FEATURE_PYRAMID: PyramidDecoder,
}


class PlainBaseline(Arrangement):
    name = PLAIN.name
    answer: type[Answer] = Answer

    def encoder(self, model: Any) -> nn.Module:
        return _ENCODERS[model.config.method](model)

    def decoder(self, model: Any, frame: Size, output: Output) -> nn.Module:
        answer = self.answer(model.config.size, frame, output)
        return _DECODERS[model.config.method](model, answer)


class LastAxisAnswer(Answer):
    """The same with the classes last beside a mask, where ONNX Runtime finds the largest faster."""

    def __init__(self, size: Size, frame: Size, output: Output) -> None:
        super().__init__(size, frame, output)
        self.mask = LastAxisMask(size, frame) if output is Output.MASK else None

    def forward(self, logits: Tensor) -> list[Tensor]:
        return super().forward(logits if self.mask is None else logits.permute(0, 2, 3, 1))


class OrtCpuBaseline(PlainBaseline):
    """Attention in slices and masks by their corners; no softmax is undone, so any model fits."""

    name = ORT_CPU.name
    classes_last = True
    answer = LastAxisAnswer

    def encoder(self, model: Any) -> nn.Module:
        return sliced(super().encoder(model))


_BASELINES = {PLAIN.name: PlainBaseline(), ORT_CPU.name: OrtCpuBaseline()}


def arrangement_for(method: Method, usual: Arrangement) -> Arrangement:
    """The arrangement for a method where MRCFA has the usual one."""
    return usual if method is Method.MRCFA else _BASELINES[usual.name]
