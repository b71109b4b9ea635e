"""The cost of a graph per frame, counted in the graph: multiply-adds and bytes moved."""

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import onnx

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
    shapes, sizes = _tensors(model)
    streams = shapes[model.graph.input[0].name][0]
    work: dict[str, int] = defaultdict(int)
    moved: dict[str, int] = defaultdict(int)
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            sizes[node.output[0]] = sizes[node.input[0]]
        if node.op_type in _FREE:
            continue
        stage = stage_of(node.name)
        work[stage] += multiply_adds(node, shapes)
        moved[stage] += sum(sizes.get(name, 0) for name in (*node.input, *node.output))
    return tuple(
        Cost(graph, stage, work[stage] // streams, moved[stage] // streams) for stage in moved
    )


def activation_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all streams' intermediate tensors, at the peak, in a runtime that fuses no nodes."""

    nodes, (_, sizes) = model.graph.node, _tensors(model)
    owner: dict[str, str] = {}
    """By the name of a view, the tensor that holds its data."""
    for node in nodes:
        if node.op_type in _FREE and node.input:
            owner[node.output[0]] = owner.get(node.input[0], node.input[0])
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, node in enumerate(nodes):
        made |= {name: at for name in node.output if name not in owner}
        last |= {owner.get(name, name): at for name in (*node.output, *node.input)}
    last |= {owner.get(value.name, value.name): len(nodes) for value in model.graph.output}
    change = np.zeros(len(nodes) + 2, np.int64)
    for name, at in made.items():
        change[at] += sizes.get(name, 0)
        change[last[name] + 1] -= sizes.get(name, 0)
    return int(change.cumsum().max())


def multiply_adds(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Multiply-adds of a convolution or matrix product; 0 for other nodes, which bytes limit."""
    if node.op_type == "Conv":
        return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
    if node.op_type in ("MatMul", "Gemm"):
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        inner = shapes[node.input[0]][-2 if transposed else -1]
        return math.prod(shapes[node.output[0]]) * inner
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


def tensor_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Shape of every named tensor."""
    return _tensors(model)[0]


def _tensors(model: onnx.ModelProto) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Shape and bytes of every named tensor; all shapes are static."""
    shapes, sizes = {}, {}
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        shapes[value.name] = shape
        sizes[value.name] = math.prod(shape) * _item_size(kind.elem_type)
    for tensor in graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        sizes[tensor.name] = math.prod(tensor.dims) * _item_size(tensor.data_type)
    return shapes, sizes


def _item_size(kind: int) -> int:
    return int(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).itemsize)
