"""Puts Q/DQ nodes into a graph: some blocks of it are then computed in 8 bits.

TensorRT wants the operands of a product rounded and its answer not, but maps and the answers of
attentions rounded where they are made, so that the kernel that makes them writes 8 bits.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mrcfa.export.quantization.blocks import Block, Wiring
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
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    insertion = _Insertion(copy, ranges, form)
    for block in blocks:
        for name in block.tensors:
            insertion.round_tensor(name)
        for name in block.products:
            insertion.round_operands(name)
    insertion.finish()
    inferred = onnx.shape_inference.infer_shapes(copy, strict_mode=True)
    onnx.checker.check_model(inferred)
    return inferred


class _Insertion:
    def __init__(self, model: onnx.ModelProto, ranges: Mapping[str, float], form: Format) -> None:
        self._graph, self._ranges, self._form = model.graph, ranges, form
        self._wiring = Wiring(model)
        self._first: list[onnx.NodeProto] = []
        self._behind: dict[str, list[onnx.NodeProto]] = {}
        self._narrow: dict[str, str] = {}

    def round_operands(self, product: str) -> None:
        node = self._wiring.nodes[product]
        for index, name in enumerate(node.input[:2]):
            if name in self._wiring.constants:
                axis = 0 if node.op_type == "Conv" else 1
                node.input[index] = self._weight(name, axis, _scope(node))
            else:
                node.input[index] = self._operand(name, _scope(node))

    def round_tensor(self, name: str) -> None:
        """For all that read it; what reads it in FP32 has numbers that never were FP16.

        TensorRT would write FP16 numbers for kernels that read the same ones.
        """
        narrow = self._operand(name, _scope(self._wiring.makers[name]))
        for reader in self._wiring.readers[name]:
            if _casts_to_fp32(reader):
                self._dequantize(name, reader)
            else:
                reader.input[:] = [narrow if each == name else each for each in reader.input]

    def finish(self) -> None:
        """Every new node behind the one that makes what it reads; rounded weights go."""
        nodes = list(self._first)
        for node in self._graph.node:
            nodes.append(node)
            for name in node.output:
                nodes += self._behind.get(name, [])
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        needed = {name for node in nodes for name in node.input}
        for unused in [each for each in self._graph.initializer if each.name not in needed]:
            self._graph.initializer.remove(unused)

    def _operand(self, name: str, scope: str) -> str:
        if name not in self._narrow:
            self._narrow[name] = f"{name}/dequantized"
            scale = self._form.scale(np.float32(self._ranges[name]))
            facts = [self._constant(f"{name}/scale", scale), self._zero(f"{name}/zero", ())]
            made = name in self._wiring.makers
            added = self._behind.setdefault(name, []) if made else self._first
            added += [
                _node("QuantizeLinear", [name, *facts], f"{name}/quantized", scope),
                _node("DequantizeLinear", [f"{name}/quantized", *facts], self._narrow[name], scope),
            ]
        return self._narrow[name]

    def _dequantize(self, name: str, cast: onnx.NodeProto) -> None:
        """In place of a cast to FP32."""
        scale = self._form.scale(np.float32(self._ranges[name])).astype(np.float32)
        facts = [self._constant(f"{cast.output[0]}/scale", scale), f"{name}/zero"]
        cast.op_type = "DequantizeLinear"
        cast.input[:] = [f"{name}/quantized", *facts]
        del cast.attribute[:]

    def _weight(self, name: str, axis: int, scope: str) -> str:
        """Per output channel: the first axis of a conv's weights, the last of a product's."""
        if name not in self._narrow:
            self._narrow[name] = f"{name}/dequantized"
            weight = numpy_helper.to_array(self._wiring.constants[name]).astype(np.float32)
            others = tuple(each for each in range(weight.ndim) if each != axis)
            scale = self._form.scale(np.abs(weight).max(axis=others))
            along = [-1 if each == axis else 1 for each in range(weight.ndim)]
            scaled = weight / scale.astype(np.float32).reshape(along)
            self._graph.initializer.append(self._form.tensor(f"{name}/quantized", scaled))
            inputs = [
                f"{name}/quantized",
                self._constant(f"{name}/scale", scale),
                self._zero(f"{name}/zero", scale.shape),
            ]
            answer = self._narrow[name]
            self._first.append(_node("DequantizeLinear", inputs, answer, scope, axis=axis))
        return self._narrow[name]

    def _constant(self, name: str, values: np.ndarray) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def _zero(self, name: str, shape: tuple[int, ...]) -> str:
        self._graph.initializer.append(self._form.tensor(name, np.zeros(shape, np.float32)))
        return name


def _casts_to_fp32(node: onnx.NodeProto) -> bool:
    if node.op_type != "Cast":
        return False
    return bool(helper.get_node_attr_value(node, "to") == onnx.TensorProto.FLOAT)


def _scope(node: onnx.NodeProto) -> str:
    return node.name.rpartition("/")[0]


def _node(
    kind: str, inputs: list[str], output: str, scope: str, **attributes: Any
) -> onnx.NodeProto:
    """Named like its neighbours, so that it belongs to their stage."""
    name = f"{scope}/{inputs[0].replace('/', '.')}/{kind}"
    return helper.make_node(kind, inputs, [output], name=name, **attributes)
