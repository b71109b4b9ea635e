"""How much each block suffers in 8 bits, and how many of them a model can have so."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from export.quantization.blocks import Block
from export.quantization.footage import BEYOND_MEMORY
from export.quantization.formats import Format
from export.quantization.graphs import Arrays, Image, Pair, Session
from export.quantization.insertion import quantized
from mrcfa.errors import MrcfaError

Graphs = Mapping[str, onnx.ModelProto]
"""`encoder` and `decoder`, which has its logits among its outputs."""
Ranges = Mapping[str, Mapping[str, float]]
"""The largest number of every tensor that may be rounded, by graph and name."""


class Sensitivity:
    """Errors of logits with one block at a time in 8 bits, at the end of a short stream."""

    def __init__(
        self,
        graphs: Graphs,
        images: Sequence[Image],
        ranges: Ranges,
        form: Format,
        threads: int,
    ) -> None:
        self._graphs, self._ranges, self._form, self._threads = graphs, ranges, form, threads
        self._encoder, self._decoder = (Session(graph, (), threads) for graph in graphs.values())
        self._images = images
        pair = Pair(self._encoder, self._decoder)
        self._features = [pair.encode(image) for image in images]
        self._wanted = self._answers(pair, self._features)
        self._range = max(float(np.ptp(np.stack(self._wanted))), 1e-9)

    def of(self, block: Block) -> float:
        """Mean error of logits, as a share of their range."""
        graph = quantized(self._graphs[block.part], [block], self._ranges[block.part], self._form)
        session = Session(graph, (), self._threads)
        if block.part == "encoder":
            pair = Pair(session, self._decoder)
            features = [pair.encode(image) for image in self._images]
        else:
            pair, features = Pair(self._encoder, session), self._features
        found = self._answers(pair, features)
        error = np.mean([np.abs(a - b).mean() for a, b in zip(found, self._wanted, strict=True)])
        return float(error) / self._range

    def _answers(self, pair: Pair, features: Sequence[Arrays]) -> list[NDArray[np.float32]]:
        """Logits of the last frames, whose references are real; the others are only remembered."""
        *earlier, _, _, _ = features
        for each in earlier:
            pair.skip(each)
        last = features[-BEYOND_MEMORY:]
        return [pair.decode(each)["logits"].astype(np.float32) for each in last]


def most_blocks(
    blocks: int, loss: Callable[[int], float], allowed: float
) -> tuple[int, dict[int, float]]:
    """How many blocks, the least sensitive first, lose no more than allowed; and what was measured.

    All are tried, and a quarter, half and three quarters of them for the curve; then the bounds
    are halved.
    """
    curve: dict[int, float] = {}
    for quarter in (4, 3, 2, 1):
        count = -(-blocks * quarter // 4)
        curve[count] = loss(count)
    good = max((count for count, lost in curve.items() if lost <= allowed), default=0)
    bad = min((count for count in curve if count > good), default=good + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        curve[middle] = loss(middle)
        good, bad = (middle, bad) if curve[middle] <= allowed else (good, middle)
    if not good:
        raise MrcfaError(
            f"not one block can be computed in 8 bits at a loss of {allowed:g} points: even one "
            f"loses {curve[min(curve)]:.2f}; allow more with --keep-loss"
        )
    return good, dict(sorted(curve.items()))
