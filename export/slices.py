"""Attention in slices of its queries, for a runtime that writes scores to memory.

TensorRT keeps the scores of the plain graphs on the chip, but only while an attention is whole. At
1088×1920 a block of the first stage has 266 million, at 2176×3840 sixteen times as many, and ONNX
Runtime, which proves the graphs, would hold them all (docs/algebra.md, lemma 9 e).
"""

import math

import numpy as np
import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import Rewrite, finished, inputs_of, shape_of

SCORES = 1 << 25
"""The most scores of an attention that a runtime may hold at once."""


def attention_in_slices(model: onnx.ModelProto, scores: int = SCORES) -> onnx.ModelProto:
    """A copy in which no softmax between two products has more scores at once."""
    copy = ir.from_proto(model)
    for softmax in [node for node in copy.graph if node.op_type == "Softmax"]:
        _slice(softmax, scores)
    return finished(copy)


def _slice(softmax: ir.Node, scores: int) -> None:
    """Compute each node of an attention, from product to product, for a slice of the queries."""
    shape = shape_of(inputs_of(softmax)[0])
    count = -(-math.prod(shape) // scores)
    score = inputs_of(softmax)[0].producer()
    if count == 1 or score is None:
        return
    chain = [score, softmax]
    while chain[-1].op_type != "MatMul":  # roundings of 8 bits may stand between
        chain.append(chain[-1].outputs[0].consumers()[0])
    made, axis = Rewrite(softmax), len(shape) - 2
    sizes = [len(part) for part in np.array_split(np.arange(shape[axis]), count)]
    parts = made.split(inputs_of(score)[0], axis, sizes, "queries")
    for place, node in enumerate(chain):
        parts = [
            made.node(
                node.op_type, [part, *inputs_of(node)[1:]], f"{place}_{number}", **node.attributes
            )
            for number, part in enumerate(parts)
        ]
    made.replace(chain, made.node("Concat", parts, axis=axis))
