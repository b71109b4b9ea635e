"""Kept tokens in groups, so that no size needs all affinity maps at once.

Every token is refined by itself, and a softmax can go on where it stopped (docs/algebra.md, lemma
16). References come one after the other before their tokens are split: each has a softmax of its
own, so that nothing is merged and nothing more is written.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from mrcfa.data.datasets import dataset_named
from mrcfa.errors import InvalidValue
from mrcfa.model.config import Config

NUMBERS_PER_PIXEL = 46
"""Room for maps in the making, unless the dataset's own size needs more in one group."""


class Groups(NamedTuple):
    """How a stream's tokens are refined: of all references at once, or one after the other."""

    one_by_one: bool
    tokens: int
    """Of each reference, at most."""

    def maps(self, config: Config) -> int:
        """Of a stream, that are in the making at once."""
        references = 1 if self.one_by_one else len(config.references)
        return references * min(self.tokens, config.kept)

    def note(self, kept: int) -> str:
        """`4 groups of tokens for each reference`, if there are several."""
        count = -(-kept // self.tokens)
        return f"{count} groups of tokens for each reference" if count > 1 else ""

    def references(self, kept: Sequence[Tensor], streams: int) -> Iterator[Sequence[Tensor]]:
        """(R, S, ·) keys and values, all of them, or (B, S, ·) for a reference of each stream."""
        if not self.one_by_one:
            yield kept
        elif streams == 1:
            yield from zip(*(part.split(1) for part in kept), strict=True)
        else:
            by_stream = (part.unflatten(0, (streams, -1)).unbind(1) for part in kept)
            yield from zip(*by_stream, strict=True)

    def split(self, kept: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        """Keys and values of one group of tokens after the other."""
        return zip(*(part.split(self.tokens, dim=1) for part in kept), strict=True)


@dataclass(frozen=True)
class DecoderMemory:
    """What a decoder holds at its peak: `fixed` bytes, and some for every map in the making.

    The figures follow what TensorRT-RTX and ONNX Runtime were seen to take.
    """

    config: Config
    fixed: int
    each: int
    itemsize: int
    block: int = 1
    """Tokens come in multiples of it."""
    one_by_one: bool = False
    """Whether references come one after the other at any size."""

    @property
    def whole(self) -> Groups:
        """As few groups as there can be."""
        return Groups(self.one_by_one, -(-self.config.kept // self.block) * self.block)

    def of(self, groups: Groups) -> int:
        return self.fixed + self.maps(groups)

    def maps(self, groups: Groups) -> int:
        return self.each * groups.maps(self.config)

    def groups(self, budget: int) -> Groups:
        """As few groups as there can be within the budget."""
        if self.of(self.whole) <= budget:
            return self.whole
        blocks = (budget - self.fixed) // (self.each * self.block)
        if blocks < 1:
            least = self.of(Groups(True, self.block))
            height, width = self.config.size
            raise InvalidValue(
                f"--activation-memory {budget // 10**6} is too little: at {height}x{width} a "
                f"decoder holds {math.ceil(least / 1e6)} MB with the fewest tokens at once; give "
                "at least that, or a smaller --size"
            )
        wanted = self.whole.tokens // self.block
        return Groups(True, math.ceil(wanted / math.ceil(wanted / blocks)) * self.block)


def usual_budget(memory: DecoderMemory, at_preset: DecoderMemory) -> int:
    """Grows with the pixels, as what is fixed does. The dataset's own size is in one group."""
    height, width = memory.config.size
    room = NUMBERS_PER_PIXEL * height * width * memory.itemsize
    return memory.fixed + max(room, at_preset.maps(at_preset.whole))


def at_preset_size(config: Config) -> Config:
    """The same model at its dataset's own size."""
    return replace(config, size=dataset_named(config.dataset).preset.size)
