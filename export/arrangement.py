"""An arrangement: how a model's graphs are laid out for one kind of device."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import nn

from mrcfa.bundle.manifest import Output
from mrcfa.export.decoder import DecoderGraph
from mrcfa.export.encoder import EncoderGraph, FrameEncoder
from mrcfa.export.feature_pyramid import PyramidDecoder, PyramidEncoder
from mrcfa.export.grouping import DecoderMemory, Grouping
from mrcfa.export.interpolation import Size
from mrcfa.export.segformer import Answer, SegFormerDecoder, SegFormerEncoder
from mrcfa.model.config import Config, Method
from mrcfa.model.frames import Normalise
from mrcfa.model.input_format import RGB, InputFormat
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer

_ENCODERS: dict[Method, Callable[[Any], FrameEncoder]] = {
    Method.MRCFA: EncoderGraph,
    Method.SEGFORMER: SegFormerEncoder,
    Method.FEATURE_PYRAMID: PyramidEncoder,
}
_BASELINES: dict[Method, Callable[[Any, Answer], nn.Module]] = {
    Method.SEGFORMER: SegFormerDecoder,
    Method.FEATURE_PYRAMID: PyramidDecoder,
}


class Arrangement(ABC):
    """Lays out both graphs of a model of any method; a variant then rounds their parameters.

    Both compute what docs/bundle.md says.
    """

    name: str
    classes_last = False
    """True if a mask graph has the classes of its logits on the last axis, False for axis 1."""
    one_stream = False
    """True if a graph computes one stream and is run for several in turn, False for a batch."""
    corner_mask = False
    """True if masks of the network's size are made from the corners of cells."""

    def encoder(self, model: SegFormer, frame: Size, form: InputFormat = RGB) -> nn.Module:
        """image -> base, queries, entry."""
        encoder = _ENCODERS[model.config.method](model)
        encoder.prepare = self.pixels(frame, model.config.size, form)
        return self.adapt(encoder, model)

    def decoder(
        self, model: SegFormer, frame: Size, output: Output, grouping: Grouping | None
    ) -> nn.Module:
        """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask]).

        MRCFA's has groups of tokens, the baselines' none.
        """
        mask = self.mask(model.config, frame) if output is Output.MASK else None
        if grouping is None:
            return _BASELINES[model.config.method](model, Answer(mask, self.classes_last))
        assert isinstance(model, MRCFA)
        return self.mrcfa_decoder(model, grouping, mask)

    @abstractmethod
    def pixels(self, frame: Size, size: Size, form: InputFormat) -> Normalise:
        """image -> the network's input."""

    @abstractmethod
    def adapt(self, encoder: FrameEncoder, model: SegFormer) -> FrameEncoder:
        """The encoder graph with parts for the device."""

    @abstractmethod
    def mrcfa_decoder(
        self, model: MRCFA, grouping: Grouping, mask: nn.Module | None
    ) -> DecoderGraph: ...

    @abstractmethod
    def mask(self, config: Config, frame: Size) -> nn.Module:
        """Logits -> mask, (B, h, w)."""

    @abstractmethod
    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory:
        """The memory that MRCFA's decoder takes."""
