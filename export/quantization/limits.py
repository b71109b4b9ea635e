"""Limits of an 8-bit variant's errors, and the share of its work that is in 8 bits."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import inputs_of, name_of
from mrcfa.bundle.manifest import Limits
from mrcfa.bundle.parity import Parity
from mrcfa.export.cost import multiply_adds
from mrcfa.export.quantization.blocks import Block
from mrcfa.export.quantization.loss import Score

SLACK = 3.0
"""How many times larger errors may be elsewhere: other frames, other sums."""
LEAST = 0.001
"""The share of pixels that may always differ."""


def limits_of(parity: Parity, score: Score) -> Limits:
    """Limits from the errors on the built-in clip and on the footage, whichever are larger."""

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
    """Share of 8 bits in each graph's multiply-adds, and in the encoder's products with weights."""
    shares = {}
    for part, model in graphs.items():
        graph = ir.from_proto(model).graph
        work = {name_of(node): multiply_adds(node) for node in graph}
        narrow = {name for block in blocks if block.part == part for name in block.products}
        shares[part] = sum(work[name] for name in narrow) / max(1, sum(work.values()))
        if part == "encoder":
            weighted = [
                name_of(node)
                for node in graph
                if any(value.is_initializer() for value in inputs_of(node)[1:2])
            ]
            total = sum(work[name] for name in weighted)
            shares["weights"] = sum(work[name] for name in weighted if name in narrow) / total
    return shares
