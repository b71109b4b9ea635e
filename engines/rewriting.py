"""Nodes and constants that stand for one node of an ONNX graph, named after it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Part = onnx.NodeProto | onnx.TensorProto


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Of every tensor that the graph tells of."""
    graph = model.graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input, *graph.output)
    }


@dataclass(frozen=True)
class Rewriting:
    scope: str
    """The name of the node that is rewritten."""
    rank: int
    """Of its images."""
    dtype: np.dtype[Any]

    def name(self, what: str) -> str:
        return f"{self.scope}/{what}"

    def constant(self, what: str, values: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(values), self.name(what))

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        name = self.name(output)
        return helper.make_node(kind, inputs, [name], name=name, **attributes)

    def shifted(
        self, image: str, output: str, axis: int, by: int, length: int, found: int
    ) -> Iterator[Part]:
        """`length` of an image's `found` places along an axis, moved, with zeros beyond the edge.

        A shift is a gather: a slice of a padded image would be written out.
        """
        places = np.arange(length) + by
        inside = (places >= 0) & (places < found)
        yield self.constant(f"places_{output}", places.clip(0, found - 1))
        moved = output if inside.all() else f"moved_{output}"
        yield self.node("Gather", [image, self.name(f"places_{output}")], moved, axis=axis)
        if not inside.all():
            kept = inside.astype(self.dtype).reshape(-1, *[1] * (self.rank - 1 - axis))
            yield self.constant(f"inside_{output}", kept)
            yield self.node("Mul", [self.name(moved), self.name(f"inside_{output}")], output)


def put_into(graph: onnx.GraphProto, part: Part) -> None:
    if isinstance(part, onnx.TensorProto):
        graph.initializer.append(part)
    else:
        graph.node.append(part)
