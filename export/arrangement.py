"""What an arrangement is: the graphs of a model, laid out for one kind of device."""

from abc import ABC, abstractmethod
from typing import Any

import onnx
from torch import nn

from mrcfa.bundle.manifest import Output
from mrcfa.export.groups import DecoderMemory, Groups, at_preset_size, usual_budget
from mrcfa.model.config import Config

Size = tuple[int, int]


class Arrangement(ABC):
    """Both graphs compute what docs/bundle.md says, in FP32; a variant rounds them further.

    A model is a `SegFormer` of the method that the arrangement is for.
    """

    name: str
    classes_last = False
    """Whether a mask graph has the classes of its logits on the last axis, or on axis 1."""
    streams_in_turn = False
    """Whether several streams are computed one after the other, or as a batch."""

    @abstractmethod
    def encoder(self, model: Any, frame: Size) -> nn.Module:
        """image -> base, queries, entry."""

    @abstractmethod
    def decoder(
        self, model: Any, frame: Size, output: Output, groups: Groups | None = None
    ) -> nn.Module:
        """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask]).

        Without groups, all tokens are refined at once.
        """

    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory | None:
        """What its decoder holds, if its tokens can come in groups."""
        return None

    def groups(
        self, config: Config, itemsize: int, streams: int, budget: int | None
    ) -> Groups | None:
        """Of the decoder's tokens, within a budget of bytes, or the usual one."""
        memory = self.memory(config, itemsize, streams)
        at_preset = self.memory(at_preset_size(config), itemsize, streams)
        if memory is None or at_preset is None:
            return None
        return memory.groups(usual_budget(memory, at_preset) if budget is None else budget)

    def finished(self, decoder: onnx.ModelProto, classes_last: bool) -> onnx.ModelProto:
        """A decoder with a mask of the network's size, where ONNX can say what PyTorch cannot."""
        return decoder
