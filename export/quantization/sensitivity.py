"""The error that each block causes in 8 bits, and the most blocks that a loss allows."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from mrcfa.errors import Unsupported
from mrcfa.export.quantization.blocks import Block
from mrcfa.export.quantization.formats import Format
from mrcfa.export.quantization.graphs import Arrays, GraphSession, Image, Pair
from mrcfa.export.quantization.insertion import quantized

Graphs = Mapping[str, onnx.ModelProto]
"""`encoder` and `decoder`; the decoder has the logits among its outputs."""
Ranges = Mapping[str, Mapping[str, float]]
"""The largest number of every tensor that may be rounded, by graph and name."""


class Sensitivity:
    """Errors of the last frame's logits in a short stream with one block at a time in 8 bits.

    `seen` are the last frame and its references; other frames are encoded once.
    """

    def __init__(
        self,
        graphs: Graphs,
        images: Sequence[Image],
        seen: Collection[int],
        ranges: Ranges,
        form: Format,
        threads: int,
    ) -> None:
        self._graphs, self._ranges, self._form, self._threads = graphs, ranges, form, threads
        self._encoder, self._decoder = (
            GraphSession(graph, (), threads) for graph in graphs.values()
        )
        self._images, self._seen = images, seen
        pair = Pair(self._encoder, self._decoder)
        self._features = [pair.encode(image) for image in images]
        self._expected = _last_logits(pair, self._features)
        self._range = max(float(np.ptp(self._expected)), 1e-9)

    def of(self, block: Block) -> float:
        """Mean error of the logits with this block in 8 bits, as a share of their range."""
        graph = quantized(self._graphs[block.part], [block], self._ranges[block.part], self._form)
        session = GraphSession(graph, (), self._threads)
        features = list(self._features)
        if block.part == "encoder":
            pair = Pair(session, self._decoder)
            for number in self._seen:
                features[number] = pair.encode(self._images[number])
        else:
            pair = Pair(self._encoder, session)
        return float(np.abs(_last_logits(pair, features) - self._expected).mean()) / self._range


def _last_logits(pair: Pair, features: Sequence[Arrays]) -> NDArray[np.float32]:
    """Logits of the last frame; earlier frames only fill the memory."""
    *earlier, last = features
    for frame in earlier:
        pair.skip(frame)
    return pair.decode(last)["logits"].astype(np.float32)


def most_blocks(
    blocks: int, loss: Callable[[int], float], allowed: float
) -> tuple[int, dict[int, float]]:
    """The most blocks, in order of sensitivity, whose loss is allowed, and the measured losses.

    All are measured, and a quarter, half and three quarters of them for the curve; then bisection
    finds the number.
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
        raise Unsupported(
            f"not one block can be computed in 8 bits at a loss of {allowed:g} points: even one "
            f"loses {curve[min(curve)]:.2f}; allow more with --keep-loss"
        )
    return good, dict(sorted(curve.items()))
