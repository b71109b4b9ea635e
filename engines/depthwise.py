"""Depthwise convs between transposes as shifted sums that keep channels last.

An 8-bit graph has its products with channels last, and its depthwise convs alone with channels
first. As a sum of shifted images a conv works in either layout (docs/algebra.md, lemma 12), and
TensorRT-RTX makes one kernel of what is before it, the conv and what is behind it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import get_attribute_value

from mrcfa.engines.rewriting import Part, Rewriting, put_into, shapes_of
from mrcfa.engines.shifts import is_plain_and_grouped

Array = np.ndarray[Any, Any]
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def with_channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32; other convs stay as they are."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = shapes_of(model)
    makers = {output: node for node in model.graph.node for output in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found: dict[str, _DepthwiseConv] = {}
    replaced: set[str] = set()
    for conv in model.graph.node:
        if not _is_depthwise(conv, weights):
            continue
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
                put_into(rewritten.graph, part)
    return rewritten


def _is_depthwise(node: onnx.NodeProto, weights: Mapping[str, TensorProto]) -> bool:
    """Of stride 1, with a channel to each group in and out, and padding that keeps the size."""
    if not is_plain_and_grouped(node):
        return False
    channels, inputs, rows, columns = weights[node.input[1]].dims
    groups = next(item.i for item in node.attribute if item.name == "group")
    pads = _pads(node)
    kept = (pads[0] + pads[2], pads[1] + pads[3]) == (rows - 1, columns - 1)
    return (inputs, groups) == (1, channels) and kept


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

    def rewritten(self) -> Iterator[Part]:
        made = Rewriting(self.name, 4, self.weight.dtype)
        _, height, width, _ = self.shape
        rows, columns = self.weight.shape[2:]
        total = "bias"
        yield made.constant(total, self.bias.astype(np.float32))
        for y in range(rows):
            yield from made.shifted(self.image, f"{y}", 1, y - self.pads[0], height, height)
            for x in range(columns):
                tap, by = f"{y}_{x}", x - self.pads[1]
                yield from made.shifted(made.name(f"{y}"), tap, 2, by, width, width)
                yield made.node("Cast", [made.name(tap)], f"wide_{tap}", to=TensorProto.FLOAT)
                yield made.constant(f"weight_{tap}", self.weight[:, 0, y, x].astype(np.float32))
                factors = [made.name(f"wide_{tap}"), made.name(f"weight_{tap}")]
                yield made.node("Mul", factors, f"product_{tap}")
                terms = [made.name(total), made.name(f"product_{tap}")]
                total = f"sum_{tap}"
                yield made.node("Add", terms, total)
        narrow = helper.np_dtype_to_tensor_dtype(self.weight.dtype)
        name = made.name("narrow")
        yield helper.make_node("Cast", [made.name(total)], [self.answer], name=name, to=narrow)
