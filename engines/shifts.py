"""Grouped convs as sums of shifted images, where that is what TensorRT-RTX makes the most of.

For sm_75 it pads every group of a conv to eight channels. The decoder convolves hundreds of tokens
one by one and the encoder its channels: weights and maps grow eightfold, which makes engines of
hundreds of megabytes, and at the sizes that need the plugin a build ends without memory. As
gathers, products and sums TensorRT fuses the same conv with its neighbours, on other GPUs too: a
norm, the conv behind it and its statistics are one kernel.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import get_attribute_value

Array = np.ndarray[Any, Any]


def without_grouped_convs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32. Strided and dilated convs stay."""
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    graph = rewritten.graph
    del graph.node[:]
    for node in model.graph.node:
        if not _is_plain_and_grouped(node):
            graph.node.append(node)
            continue
        attributes = {item.name: get_attribute_value(item) for item in node.attribute}
        weight, *bias = (numpy_helper.to_array(weights[name]) for name in node.input[1:])
        conv = _GroupedConv(
            node,
            weight,
            bias[0] if bias else np.zeros(len(weight)),
            groups=attributes["group"],
            pads=attributes.get("pads", [0, 0, 0, 0]),
            shape=shapes[node.output[0]],
            size=shapes[node.input[0]][2:],
        )
        for part in conv.rewritten():
            if isinstance(part, onnx.TensorProto):
                graph.initializer.append(part)
            else:
                graph.node.append(part)
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return rewritten


def has_grouped_convs(model: onnx.ModelProto) -> bool:
    """Whether there is anything to rewrite."""
    return any(map(_is_plain_and_grouped, model.graph.node))


def _is_plain_and_grouped(node: onnx.NodeProto) -> bool:
    attributes = {item.name: get_attribute_value(item) for item in node.attribute}
    steps = (*attributes.get("strides", []), *attributes.get("dilations", []))
    return node.op_type == "Conv" and attributes.get("group", 1) > 1 and set(steps) <= {1}


@dataclass(frozen=True)
class _GroupedConv:
    """A conv of stride 1 with I inputs and O outputs to each of G groups -> (R, G·O, h, w).

    Output o of every group is a sum over inputs i and taps (y, x): input i, shifted by (y, x) with
    zeros beyond the edge, times a weight (docs/algebra.md, lemma 12). Images are (R, G, 1, h, w).
    A shift is a gather of rows and one of columns: a slice of a padded image would be written out.
    """

    node: onnx.NodeProto
    weight: Array
    """(G·O, I, kh, kw)."""
    bias: Array
    groups: int
    pads: list[int]
    shape: tuple[int, ...]
    """(R, G·O, h, w)."""
    size: tuple[int, ...]
    """Height and width of the input."""

    def rewritten(self) -> Iterator[onnx.NodeProto | onnx.TensorProto]:
        batch, channels, height, width = self.shape
        inputs, rows, columns = self.weight.shape[1:]
        outputs = channels // self.groups
        narrow = helper.np_dtype_to_tensor_dtype(self.weight.dtype)

        yield self._constant("split", [batch, self.groups, inputs, *self.size])
        yield self._node("Reshape", [self.node.input[0], self._name("split")], "grouped")
        for i in range(inputs):
            yield self._constant(f"place_{i}", [i])
            one = [self._name("grouped"), self._name(f"place_{i}")]
            yield self._node("Gather", one, f"input_{i}", axis=2)
            for y in range(rows):
                row = f"{i}_{y}"
                yield from self._shifted(f"input_{i}", row, 3, y - self.pads[0], height)
                for x in range(columns):
                    tap = f"{row}_{x}"
                    yield from self._shifted(row, tap, 4, x - self.pads[1], width)
                    yield self._node(
                        "Cast", [self._name(tap)], f"wide_{tap}", to=onnx.TensorProto.FLOAT
                    )
        weight = self.weight.reshape(self.groups, outputs, inputs, rows, columns)
        for o in range(outputs):
            total = f"bias_{o}"
            yield self._constant(total, self._shared(self.bias.reshape(self.groups, -1)[:, o]))
            for i, y, x in np.ndindex(inputs, rows, columns):
                tap = f"{o}_{i}_{y}_{x}"
                yield self._constant(f"weight_{tap}", self._shared(weight[:, o, i, y, x]))
                factors = [self._name(f"wide_{i}_{y}_{x}"), self._name(f"weight_{tap}")]
                yield self._node("Mul", factors, f"product_{tap}")
                terms = [self._name(total), self._name(f"product_{tap}")]
                total = f"sum_{tap}"
                yield self._node("Add", terms, total)
            yield self._node("Cast", [self._name(total)], f"output_{o}", to=narrow)
        every = [self._name(f"output_{o}") for o in range(outputs)]
        yield self._node("Concat", every, "joined", axis=2)
        yield self._constant("whole", list(self.shape))
        yield helper.make_node(
            "Reshape",
            [self._name("joined"), self._name("whole")],
            [self.node.output[0]],
            name=self.node.name,
        )

    def _shifted(
        self, image: str, output: str, axis: int, by: int, length: int
    ) -> Iterator[onnx.NodeProto | onnx.TensorProto]:
        """An image shifted along an axis, with zeros beyond the edge."""
        places = np.arange(length) + by
        inside = (places >= 0) & (places < self.size[axis - 3])
        yield self._constant(f"places_{output}", places.clip(0, self.size[axis - 3] - 1))
        moved = output if inside.all() else f"moved_{output}"
        inputs = [self._name(image), self._name(f"places_{output}")]
        yield self._node("Gather", inputs, moved, axis=axis)
        if not inside.all():
            shape = (-1, 1) if axis == 3 else (-1,)
            kept = inside.astype(self.weight.dtype).reshape(shape)
            yield self._constant(f"inside_{output}", kept)
            factors = [self._name(moved), self._name(f"inside_{output}")]
            yield self._node("Mul", factors, output)

    def _shared(self, values: Array) -> Array:
        """One number where all groups have the same, else one for each image of (R, G, 1, h, w)."""
        same = (values == values[0]).all()
        return (values[:1] if same else values.reshape(-1, 1, 1, 1)).astype(np.float32)

    def _name(self, what: str) -> str:
        return f"{self.node.name}/{what}"

    def _constant(self, what: str, values: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(values), self._name(what))

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        name = self._name(output)
        return helper.make_node(kind, inputs, [name], name=name, **attributes)
