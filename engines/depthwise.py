"""Depthwise convs between transposes as shifted sums that keep channels last.

An 8-bit graph has its products with channels last, and its depthwise convs alone with channels
first. As a sum of shifted images a conv works in either layout (docs/algebra.md, lemma 12), and
TensorRT-RTX makes one kernel of what is before it, the conv and what is behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import get_attribute_value

Array = np.ndarray[Any, Any]
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def with_channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32; other convs stay as they are."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in model.graph.value_info
    }
    makers = {output: node for node in model.graph.node for output in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found: dict[str, _DepthwiseConv] = {}
    replaced: set[str] = set()
    for conv in filter(_is_depthwise, model.graph.node):
        before, after = makers.get(conv.input[0]), readers.get(conv.output[0], [])
        if before is None or not _moves(before, TO_FIRST):
            continue
        if len(after) != 1 or not _moves(after[0], TO_LAST):
            continue
        weight, *bias = (numpy_helper.to_array(weights[name]) for name in conv.input[1:])
        kept = bias[0] if bias else np.zeros(len(weight))
        image, answer = before.input[0], after[0].output[0]
        found[after[0].name] = _DepthwiseConv(
            conv.name, image, answer, weight, kept, _pads(conv), shapes[image]
        )
        replaced |= {conv.name, after[0].name}
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    del rewritten.graph.node[:]
    for node in model.graph.node:
        if node.name not in replaced:
            rewritten.graph.node.append(node)
        elif node.name in found:
            for part in found[node.name].rewritten():
                if isinstance(part, onnx.TensorProto):
                    rewritten.graph.initializer.append(part)
                else:
                    rewritten.graph.node.append(part)
    return rewritten


def _is_depthwise(node: onnx.NodeProto) -> bool:
    """Of stride 1, a channel each, and an answer as large as the image."""
    attributes = {item.name: get_attribute_value(item) for item in node.attribute}
    steps = (*attributes.get("strides", []), *attributes.get("dilations", []))
    return node.op_type == "Conv" and attributes.get("group", 1) > 1 and set(steps) <= {1}


def _moves(node: onnx.NodeProto, order: list[int]) -> bool:
    return node.op_type == "Transpose" and get_attribute_value(node.attribute[0]) == order


def _pads(node: onnx.NodeProto) -> list[int]:
    attributes = {item.name: get_attribute_value(item) for item in node.attribute}
    return list(attributes.get("pads", [0, 0, 0, 0]))


@dataclass(frozen=True)
class _DepthwiseConv:
    """(R, h, w, C) -> (R, h, w, C): a sum over taps, each a shifted image times C weights."""

    name: str
    image: str
    answer: str
    weight: Array
    """(C, 1, kh, kw)."""
    bias: Array
    pads: list[int]
    shape: tuple[int, ...]

    def rewritten(self) -> Iterator[onnx.NodeProto | onnx.TensorProto]:
        rows, columns = self.weight.shape[2:]
        total = "bias"
        yield self._constant(total, self.bias.astype(np.float32))
        for y in range(rows):
            yield from self._shifted(self.image, f"{y}", 1, y - self.pads[0])
            for x in range(columns):
                tap = f"{y}_{x}"
                yield from self._shifted(self._name(f"{y}"), tap, 2, x - self.pads[1])
                yield self._node(
                    "Cast", [self._name(tap)], f"wide_{tap}", to=onnx.TensorProto.FLOAT
                )
                yield self._constant(f"weight_{tap}", self.weight[:, 0, y, x].astype(np.float32))
                factors = [self._name(f"wide_{tap}"), self._name(f"weight_{tap}")]
                yield self._node("Mul", factors, f"product_{tap}")
                terms = [self._name(total), self._name(f"product_{tap}")]
                total = f"sum_{tap}"
                yield self._node("Add", terms, total)
        narrow = helper.np_dtype_to_tensor_dtype(self.weight.dtype)
        yield helper.make_node(
            "Cast", [self._name(total)], [self.answer], name=self._name("narrow"), to=narrow
        )

    def _shifted(
        self, image: str, output: str, axis: int, by: int
    ) -> Iterator[onnx.NodeProto | onnx.TensorProto]:
        """An image shifted along an axis, with zeros beyond the edge."""
        length = self.shape[axis]
        places = np.arange(length) + by
        inside = (places >= 0) & (places < length)
        yield self._constant(f"places_{output}", places.clip(0, length - 1))
        moved = output if inside.all() else f"moved_{output}"
        yield self._node("Gather", [image, self._name(f"places_{output}")], moved, axis=axis)
        if not inside.all():
            kept = inside.astype(self.weight.dtype).reshape((-1, 1, 1) if axis == 1 else (-1, 1))
            yield self._constant(f"inside_{output}", kept)
            yield self._node("Mul", [self._name(moved), self._name(f"inside_{output}")], output)

    def _name(self, what: str) -> str:
        return f"{self.name}/{what}"

    def _constant(self, what: str, values: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(values), self._name(what))

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        name = self._name(output)
        return helper.make_node(kind, inputs, [name], name=name, **attributes)
