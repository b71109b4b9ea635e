"""Groups of kept tokens, so that no frame size needs all affinity maps at once.

Every token is refined by itself, and a softmax can be continued with further tokens
(docs/algebra.md, lemma 16). References are processed one after the other before their tokens are
split: each has a softmax of its own, so nothing is merged and nothing more is written.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from mrcfa.errors import InvalidValue
from mrcfa.model.config import Config

NUMBERS_PER_PIXEL = 46
"""Size of the usual budget for maps, unless the dataset's own size needs more in one group."""


class Grouping(NamedTuple):
    """How the decoder of a stream splits the kept tokens into groups."""

    one_by_one: bool
    """True: references are processed one after the other. False: all at once."""
    tokens: int
    """The largest number of tokens that a group takes from one reference."""

    def maps(self, config: Config) -> int:
        """Number of affinity maps of a stream that exist at once."""
        references = 1 if self.one_by_one else len(config.references)
        return references * min(self.tokens, config.kept)

    def note(self, kept: int) -> str:
        """`4 groups of tokens for each reference`, or nothing if one group has them all."""
        count = -(-kept // self.tokens)
        return f"{count} groups of tokens for each reference" if count > 1 else ""

    def references(self, kept: Sequence[Tensor], streams: int) -> Iterator[Sequence[Tensor]]:
        """Keys and values (R, S, C) of all references, or (B, S, C) of one in each stream."""
        if not self.one_by_one:
            yield kept
        elif streams == 1:
            yield from zip(*(part.split(1) for part in kept), strict=True)
        else:
            by_stream = (part.unflatten(0, (streams, -1)).unbind(1) for part in kept)
            yield from zip(*by_stream, strict=True)

    def groups(self, kept: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        """Keys and values (R, s, C) of one group of tokens after the other."""
        return zip(*(part.split(self.tokens, dim=1) for part in kept), strict=True)


@dataclass(frozen=True)
class DecoderMemory:
    """Bytes that a decoder holds at its peak: a fixed part, and a part that grows with the maps.

    The figures follow measurements of TensorRT-RTX and ONNX Runtime.
    """

    config: Config
    fixed: int
    per_map: int
    itemsize: int
    block: int = 1
    """The number of tokens in a group is a multiple of this."""
    one_by_one: bool = False
    """True if references are processed one after the other at any size."""

    @property
    def whole(self) -> Grouping:
        """The grouping with the fewest groups."""
        return Grouping(self.one_by_one, -(-self.config.kept // self.block) * self.block)

    def usual_budget(self, at_preset: "DecoderMemory") -> int:
        """Bytes that grow with the pixels. The dataset's own size fits them in one group."""
        height, width = self.config.size
        room = NUMBERS_PER_PIXEL * height * width * self.itemsize
        return self.fixed + max(room, at_preset.of_maps(at_preset.whole))

    def total(self, grouping: Grouping) -> int:
        return self.fixed + self.of_maps(grouping)

    def of_maps(self, grouping: Grouping) -> int:
        return self.per_map * grouping.maps(self.config)

    def grouping(self, budget: int) -> Grouping:
        """The grouping with the fewest groups whose total is within the budget."""
        if self.total(self.whole) <= budget:
            return self.whole
        blocks = (budget - self.fixed) // (self.per_map * self.block)
        if blocks < 1:
            least = self.total(Grouping(True, self.block))
            height, width = self.config.size
            raise InvalidValue(
                f"--activation-memory {budget // 10**6} is too little: at {height}x{width} a "
                f"decoder holds {math.ceil(least / 1e6)} MB with the fewest tokens at once; give "
                "at least that, or a smaller --size"
            )
        wanted = self.whole.tokens // self.block
        return Grouping(True, math.ceil(wanted / math.ceil(wanted / blocks)) * self.block)
