"""Attention in slices of its queries, for a runtime that writes scores to memory.

TensorRT keeps the scores of the plain graphs on the chip, but only while an attention is whole. At
1088×1920 a block of the first stage has 266 million, at 2176×3840 sixteen times as many, and ONNX
Runtime, which proves the graphs, would hold them all (docs/algebra.md, lemma 9 e).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

SCORES = 1 << 25
"""At once."""


def attention_in_slices(model: onnx.ModelProto, scores: int = SCORES) -> onnx.ModelProto:
    """A copy in which no softmax between two products has more scores at once."""
    sliced = onnx.ModelProto()
    sliced.CopyFrom(model)
    graph = sliced.graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in graph.value_info
    }
    makers = {name: node for node in model.graph.node for name in node.output}
    readers = {name: node for node in model.graph.node for name in node.input}
    slices: dict[str, list[onnx.NodeProto]] = {}
    """By the name of each node of an attention, what takes its place."""
    for softmax in (node for node in model.graph.node if node.op_type == "Softmax"):
        shape = shapes[softmax.input[0]]
        count = -(-math.prod(shape) // scores)
        if count > 1:
            queries = shape[-2]
            sizes = [len(part) for part in np.array_split(np.arange(queries), count)]
            named = f"{softmax.name}/sizes"
            graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), named))
            chain = [makers[softmax.input[0]], softmax]
            while chain[-1].op_type != "MatMul":  # roundings of 8 bits may stand between
                chain.append(readers[chain[-1].output[0]])
            slices |= {node.name: [] for node in chain}
            slices[chain[-1].name] = list(_sliced(chain, named, count, len(shape) - 2))
    del graph.node[:]
    for node in model.graph.node:
        graph.node.extend(slices.get(node.name, [node]))
    return sliced


def _sliced(
    chain: Sequence[onnx.NodeProto], sizes: str, count: int, axis: int
) -> Iterator[onnx.NodeProto]:
    """The nodes of a chain for every slice of what the first of them reads."""
    scope = chain[1].name
    parts = [f"{scope}/queries_{number}" for number in range(count)]
    yield helper.make_node("Split", [chain[0].input[0], sizes], parts, axis=axis)
    for place, node in enumerate(chain):
        answers = [f"{scope}/{place}_{number}" for number in range(count)]
        for part, answer in zip(parts, answers, strict=True):
            yield _copy(node, [part, *node.input[1:]], answer)
        parts = answers
    yield helper.make_node("Concat", parts, list(chain[-1].output), axis=axis)


def _copy(node: onnx.NodeProto, inputs: list[str], output: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name, copy.input[:], copy.output[:] = output, inputs, [output]
    return copy
