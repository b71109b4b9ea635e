"""Q/DQ nodes in a graph: some blocks of it are then computed in 8 bits.

TensorRT wants the operands of a product rounded and its result not, but maps and the results of
attentions rounded where they are made, so that the kernel that makes them writes 8 bits.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.convenience import create_value_mapping

from mrcfa.bundle.edits import array_of, finished, inputs_of, name_of, new_constant, new_node
from mrcfa.export.quantization.blocks import Block
from mrcfa.export.quantization.formats import Format


def quantized(
    model: onnx.ModelProto,
    blocks: Collection[Block],
    ranges: Mapping[str, float],
    form: Format,
) -> onnx.ModelProto:
    """A copy with these blocks in 8 bits; `ranges` has the largest number of each tensor to round.

    Weights have a scale for each output channel, other tensors one.
    """
    copy = ir.from_proto(model)
    insertion = _Insertion(copy.graph, ranges, form)
    for block in blocks:
        for name in block.tensors:
            insertion.round_tensor(name)
        for name in block.products:
            insertion.round_operands(name)
    insertion.finish()
    inferred = onnx.shape_inference.infer_shapes(finished(copy), strict_mode=True)
    onnx.checker.check_model(inferred)
    return inferred


class _Insertion:
    def __init__(self, graph: ir.Graph, ranges: Mapping[str, float], form: Format) -> None:
        self._graph, self._ranges, self._form = graph, ranges, form
        self._nodes = {name_of(node): node for node in graph}
        self._values = create_value_mapping(graph)
        self._first: list[ir.Node] = []
        self._behind: dict[ir.Value, list[ir.Node]] = {}
        self._rounded: dict[ir.Value, ir.Node] = {}
        """The node that brings a rounded tensor back to 16 bits."""

    def round_operands(self, product: str) -> None:
        """Round both operands of a product."""
        node = self._nodes[product]
        for index, value in enumerate(inputs_of(node)[:2]):
            if value.is_initializer():
                rounded = self._weight(value, 0 if node.op_type == "Conv" else 1, _scope(node))
            else:
                rounded = self._tensor(value, _scope(node))
            node.replace_input_with(index, rounded.outputs[0])

    def round_tensor(self, name: str) -> None:
        """Round a tensor for all its consumers.

        A consumer in FP32 dequantizes it to FP32, so that TensorRT writes no FP16 numbers beside
        the 8-bit ones.
        """
        value = self._values[name]
        maker = value.producer()
        assert maker is not None
        rounded = self._tensor(value, _scope(maker))
        for node, index in value.uses():
            if _casts_to_fp32(node):
                self._dequantize(rounded, node)
            elif node.op_type != "QuantizeLinear":
                node.replace_input_with(index, rounded.outputs[0])

    def finish(self) -> None:
        """Put every new node behind the one that makes its input, and new weights first."""
        for maker in self._nodes.values():
            behind = [node for value in maker.outputs for node in self._behind.get(value, ())]
            self._graph.insert_after(maker, behind)
        self._graph.insert_before(self._graph[0], self._first)

    def _tensor(self, value: ir.Value, scope: str) -> ir.Node:
        if value not in self._rounded:
            name = name_of(value)
            numbers = self._scale_and_zero(name, self._form.scale(np.float32(self._ranges[name])))
            quantize = _node("QuantizeLinear", [value, *numbers], f"{name}/quantized", scope)
            back = [quantize.outputs[0], *numbers]
            self._rounded[value] = _node("DequantizeLinear", back, f"{name}/dequantized", scope)
            made = value.producer() is not None
            nodes = self._behind.setdefault(value, []) if made else self._first
            nodes += [quantize, self._rounded[value]]
        return self._rounded[value]

    def _weight(self, value: ir.Value, axis: int, scope: str) -> ir.Node:
        """Round a weight with a scale for each output channel, which are along `axis`."""
        if value not in self._rounded:
            name, weight = name_of(value), array_of(value).astype(np.float32)
            others = tuple(other for other in range(weight.ndim) if other != axis)
            scale = self._form.scale(np.abs(weight).max(axis=others, keepdims=True))
            narrow = f"{name}/quantized"
            back = [
                new_constant(self._graph, narrow, self._form.tensor(narrow, weight / scale)),
                *self._scale_and_zero(name, scale.ravel()),
            ]
            answer = f"{name}/dequantized"
            self._rounded[value] = _node("DequantizeLinear", back, answer, scope, axis=axis)
            self._first.append(self._rounded[value])
        return self._rounded[value]

    def _scale_and_zero(self, name: str, scale: NDArray[np.float16]) -> list[ir.Value]:
        """New constants: the scale and the zero point of a rounded tensor."""
        zero = self._form.tensor("", np.zeros(scale.shape, np.float32))
        contents = {f"{name}/scale": np.asarray(scale), f"{name}/zero": zero}
        return [new_constant(self._graph, *content) for content in contents.items()]

    def _dequantize(self, rounded: ir.Node, cast: ir.Node) -> None:
        """Make a cast to FP32 read the 8 bits."""
        narrow, scale, zero = inputs_of(rounded)
        name = f"{name_of(cast.outputs[0])}/scale"
        wide = new_constant(self._graph, name, array_of(scale).astype(np.float32))
        cast.op_type = "DequantizeLinear"
        cast.attributes.clear()
        cast.resize_inputs(3)
        for index, value in enumerate((narrow, wide, zero)):
            cast.replace_input_with(index, value)


def _casts_to_fp32(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.attributes.get_int("to") == onnx.TensorProto.FLOAT


def _scope(node: ir.Node) -> str:
    return name_of(node).rpartition("/")[0]


def _node(kind: str, inputs: list[ir.Value], output: str, scope: str, **attributes: Any) -> ir.Node:
    """A node that is named like its neighbours, so that it belongs to their stage."""
    name = f"{scope}/{name_of(inputs[0]).replace('/', '.')}/{kind}"
    return new_node(kind, inputs, [output], name, **attributes)
