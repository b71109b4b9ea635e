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

from mrcfa.engines.rewriting import Part, Rewriting, put_into, shapes_of

Array = np.ndarray[Any, Any]


def without_grouped_convs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32. Strided and dilated convs stay."""
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = shapes_of(model)
    graph = rewritten.graph
    del graph.node[:]
    for node in model.graph.node:
        if not is_plain_and_grouped(node):
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
            put_into(graph, part)
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return rewritten


def has_grouped_convs(model: onnx.ModelProto) -> bool:
    """Whether there is anything to rewrite."""
    return any(map(is_plain_and_grouped, model.graph.node))


def is_plain_and_grouped(node: onnx.NodeProto) -> bool:
    attributes = {item.name: get_attribute_value(item) for item in node.attribute}
    steps = (*attributes.get("strides", []), *attributes.get("dilations", []))
    return node.op_type == "Conv" and attributes.get("group", 1) > 1 and set(steps) <= {1}


@dataclass(frozen=True)
class _GroupedConv:
    """A conv of stride 1 with I inputs and O outputs to each of G groups -> (R, G·O, h, w).

    Output o of every group is a sum over inputs i and taps (y, x): input i, shifted by (y, x) with
    zeros beyond the edge, times a weight (docs/algebra.md, lemma 12). Images are (R, G, 1, h, w).
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

    def rewritten(self) -> Iterator[Part]:
        made = self._made
        batch, channels, height, width = self.shape
        inputs, rows, columns = self.weight.shape[1:]
        outputs = channels // self.groups
        narrow = helper.np_dtype_to_tensor_dtype(self.weight.dtype)

        yield made.constant("split", [batch, self.groups, inputs, *self.size])
        yield made.node("Reshape", [self.node.input[0], made.name("split")], "grouped")
        for i in range(inputs):
            yield made.constant(f"place_{i}", [i])
            one = [made.name("grouped"), made.name(f"place_{i}")]
            yield made.node("Gather", one, f"input_{i}", axis=2)
            for y in range(rows):
                row = f"{i}_{y}"
                yield from made.shifted(
                    made.name(f"input_{i}"), row, 3, y - self.pads[0], height, self.size[0]
                )
                for x in range(columns):
                    tap = f"{row}_{x}"
                    yield from made.shifted(
                        made.name(row), tap, 4, x - self.pads[1], width, self.size[1]
                    )
                    yield made.node(
                        "Cast", [made.name(tap)], f"wide_{tap}", to=onnx.TensorProto.FLOAT
                    )
        weight = self.weight.reshape(self.groups, outputs, inputs, rows, columns)
        for o in range(outputs):
            total = f"bias_{o}"
            yield made.constant(total, self._shared(self.bias.reshape(self.groups, -1)[:, o]))
            for i, y, x in np.ndindex(inputs, rows, columns):
                tap = f"{o}_{i}_{y}_{x}"
                yield made.constant(f"weight_{tap}", self._shared(weight[:, o, i, y, x]))
                factors = [made.name(f"wide_{i}_{y}_{x}"), made.name(f"weight_{tap}")]
                yield made.node("Mul", factors, f"product_{tap}")
                terms = [made.name(total), made.name(f"product_{tap}")]
                total = f"sum_{tap}"
                yield made.node("Add", terms, total)
            yield made.node("Cast", [made.name(total)], f"output_{o}", to=narrow)
        every = [made.name(f"output_{o}") for o in range(outputs)]
        yield made.node("Concat", every, "joined", axis=2)
        yield made.constant("whole", list(self.shape))
        yield helper.make_node(
            "Reshape",
            [made.name("joined"), made.name("whole")],
            [self.node.output[0]],
            name=self.node.name,
        )

    def _shared(self, values: Array) -> Array:
        """One number where all groups have the same, else one for each image of (R, G, 1, h, w)."""
        same = (values == values[0]).all()
        return (values[:1] if same else values.reshape(-1, 1, 1, 1)).astype(np.float32)

    @property
    def _made(self) -> Rewriting:
        return Rewriting(self.node.name, 5, self.weight.dtype)
