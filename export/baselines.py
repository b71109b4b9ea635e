"""The arrangements of the paper's baselines: names and contract as MRCFA's, graphs of their own."""

from typing import Any

from torch import nn

from mrcfa.bundle.manifest import Output
from mrcfa.export.arrangement import Arrangement, Size
from mrcfa.export.encoder import EncoderGraph
from mrcfa.export.feature_pyramid import PyramidDecoder, PyramidEncoder
from mrcfa.export.groups import Groups
from mrcfa.export.mask import GatheredMask
from mrcfa.export.ort_cpu.arrangement import ORT_CPU, sliced
from mrcfa.export.ort_cpu.retrieval import LastAxisMask
from mrcfa.export.plain import PLAIN, fusible
from mrcfa.export.segformer import Answer, SegFormerDecoder, SegFormerEncoder
from mrcfa.model.config import Config, Method

_ENCODERS: dict[Method, type[EncoderGraph] | type[SegFormerEncoder]] = {
    Method.SEGFORMER: SegFormerEncoder,
    Method.FEATURE_PYRAMID: PyramidEncoder,
}
_DECODERS: dict[Method, type[nn.Module]] = {
    Method.SEGFORMER: SegFormerDecoder,
    Method.FEATURE_PYRAMID: PyramidDecoder,
}


class PlainBaseline(Arrangement):
    name = PLAIN.name

    def encoder(self, model: Any, frame: Size) -> nn.Module:
        return fusible(_ENCODERS[model.config.method](model), model, frame)

    def decoder(
        self, model: Any, frame: Size, output: Output, groups: Groups | None = None
    ) -> nn.Module:
        mask = self._mask(model.config, frame) if output is Output.MASK else None
        return _DECODERS[model.config.method](model, Answer(mask, self.classes_last))

    def _mask(self, config: Config, frame: Size) -> nn.Module:
        return GatheredMask(config.classes, config.grid(4), config.size, frame)


class OrtCpuBaseline(PlainBaseline):
    """Attention in slices and masks by their corners."""

    name = ORT_CPU.name
    classes_last = True

    def encoder(self, model: Any, frame: Size) -> nn.Module:
        return sliced(_ENCODERS[model.config.method](model))

    def _mask(self, config: Config, frame: Size) -> nn.Module:
        return LastAxisMask(config.size, frame)


_BASELINES = {PLAIN.name: PlainBaseline(), ORT_CPU.name: OrtCpuBaseline()}


def arrangement_for(method: Method, usual: Arrangement) -> Arrangement:
    """The arrangement for a method where MRCFA has the usual one."""
    return usual if method is Method.MRCFA else _BASELINES[usual.name]
