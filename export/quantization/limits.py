"""What an 8-bit variant is held to wherever it runs, and how much of its work is in 8 bits."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from mrcfa.bundle.manifest import Limits
from mrcfa.bundle.parity import Parity
from mrcfa.export.cost import multiply_adds, tensor_shapes
from mrcfa.export.quantization.blocks import Block
from mrcfa.export.quantization.loss import Score

SLACK = 3.0
"""By which errors may be larger elsewhere: other frames, other sums."""
LEAST = 0.001
"""A share of pixels that is never held against it."""


def limits_of(parity: Parity, score: Score) -> Limits:
    """From errors on the built-in clip and on the footage, whichever are larger."""

    def below(*shares: float) -> float:
        return max(0.0, 1 - SLACK * max(LEAST, *(1 - share for share in shares)))

    scale = max(parity.high - parity.low, 1e-9)
    return Limits(
        largest_error=SLACK * parity.worst / scale,
        mean_error=SLACK * float(np.mean(parity.totals)) / scale,
        agreement=below(score.agreement, *map(float, parity.agreements)),
        mean_iou=below(score.mean_iou),
        worst_iou=below(score.worst_iou),
    )


def shares_of(graphs: Mapping[str, onnx.ModelProto], blocks: Sequence[Block]) -> dict[str, float]:
    """Of the multiply-adds of both graphs, and of the encoder's products with weights."""
    shares = {}
    for part, graph in graphs.items():
        shapes = tensor_shapes(graph)
        constants = {each.name for each in graph.graph.initializer}
        work = {node.name: multiply_adds(node, shapes) for node in graph.graph.node}
        narrow = {name for block in blocks if block.part == part for name in block.products}
        shares[part] = sum(work[name] for name in narrow) / max(1, sum(work.values()))
        if part == "encoder":
            weighted = [node.name for node in graph.graph.node if set(node.input[1:2]) & constants]
            total = sum(work[name] for name in weighted)
            shares["weights"] = sum(work[name] for name in weighted if name in narrow) / total
    return shares
