"""The cost of a graph per frame, counted in the graph: multiply-adds and bytes moved."""

import math
from collections import defaultdict

import numpy as np
import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import inputs_of, name_of, producer, shape_of
from mrcfa.bundle.manifest import Cost

_FREE = {
    *("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Constant"),
    *("QuantizeLinear", "DequantizeLinear"),
}
"""Views, which move no data, and roundings, which are fused with the node before or after."""


def graph_cost(model: onnx.ModelProto, graph: str) -> tuple[Cost, ...]:
    """One `Cost` per stage of the model, in the order of the graph.

    The costs of a graph with several streams are divided by their number.
    """
    nodes = ir.from_proto(model).graph
    streams = shape_of(nodes.inputs[0])[0]
    work: dict[str, int] = defaultdict(int)
    moved: dict[str, int] = defaultdict(int)
    for node in nodes:
        if node.op_type not in _FREE:
            stage = stage_of(name_of(node))
            work[stage] += multiply_adds(node)
            moved[stage] += sum(map(_bytes_moved, (*inputs_of(node), *node.outputs)))
    return tuple(
        Cost(graph, stage, work[stage] // streams, moved[stage] // streams) for stage in moved
    )


def activation_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all streams' intermediate tensors, at the peak, in a runtime that fuses no nodes."""
    nodes = ir.from_proto(model).graph
    owner: dict[ir.Value, ir.Value] = {}
    """The tensor that holds the data of a view."""
    made: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    for at, node in enumerate(nodes):
        inputs = inputs_of(node)
        if node.op_type in _FREE and inputs:
            owner[node.outputs[0]] = owner.get(inputs[0], inputs[0])
        made |= {value: at for value in node.outputs if value not in owner}
        last |= {owner.get(value, value): at for value in (*node.outputs, *inputs)}
    last |= {owner.get(value, value): len(nodes) for value in nodes.outputs}
    change = np.zeros(len(nodes) + 2, np.int64)
    for value, at in made.items():
        change[at] += _bytes(value)
        change[last[value] + 1] -= _bytes(value)
    return int(change.cumsum().max())


def multiply_adds(node: ir.Node) -> int:
    """Multiply-adds of a convolution or matrix product; 0 for other nodes, which bytes limit."""
    if node.op_type == "Conv":
        return math.prod(shape_of(node.outputs[0])) * math.prod(shape_of(inputs_of(node)[1])[1:])
    if node.op_type in ("MatMul", "Gemm"):
        transposed = node.attributes.get_int("transA", 0)
        inner = shape_of(inputs_of(node)[0])[-2 if transposed else -1]
        return math.prod(shape_of(node.outputs[0])) * inner
    return 0


def stage_of(node_name: str) -> str:
    """`encoder/stages/2/blocks/0/attn/q/Gemm` -> `encoder/stages/2`; else the name's first part."""
    parts = node_name.split("/")
    if len(parts) == 1:
        return "graph"
    return "/".join(parts[:3]) if parts[:2] == ["encoder", "stages"] else parts[0]


def parameter_count(model: onnx.ModelProto) -> int:
    """Elements of the floating-point initializers."""
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    return sum(math.prod(t.dims) for t in model.graph.initializer if t.data_type in floating)


def _bytes_moved(value: ir.Value) -> int:
    """Bytes of a tensor in memory, where a rounded one has 8 bits."""
    rounding = producer(value, "DequantizeLinear")
    return _bytes(inputs_of(rounding)[0] if rounding else value)


def _bytes(value: ir.Value) -> int:
    """Bytes of a tensor; 0 if its shape or type is not known."""
    if value.shape is None or value.dtype is None:
        return 0
    return int(math.prod(shape_of(value)) * value.dtype.itemsize)
