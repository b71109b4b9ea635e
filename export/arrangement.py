"""What an arrangement is: the graphs of a model, laid out for one kind of device."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import onnx
from torch import nn

from mrcfa.manifest import Output

Size = tuple[int, int]


class Fit(NamedTuple):
    """Whether an arrangement can hold a model, and if not, why."""

    fits: bool
    reason: str = ""


class Arrangement(ABC):
    """Both graphs compute what docs/bundle.md says, in FP32; a variant rounds them further.

    A model is a `SegFormer` of the method that the arrangement is for.
    """

    name: str
    classes_last = False
    """Whether a mask graph has the classes of its logits on the last axis, or on axis 1."""
    streams_in_turn = False
    """Whether several streams are computed one after the other, or as a batch."""

    def fits(self, model: Any) -> Fit:
        """Whether this model can be laid out so."""
        return Fit(True)

    @abstractmethod
    def encoder(self, model: Any, frame: Size) -> nn.Module:
        """image -> base, queries, entry."""

    @abstractmethod
    def decoder(self, model: Any, frame: Size, output: Output) -> nn.Module:
        """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    def finished(self, decoder: onnx.ModelProto, classes_last: bool) -> onnx.ModelProto:
        """A decoder with a mask of the network's size, where ONNX can say what PyTorch cannot."""
        return decoder
