"""Edits of ONNX graphs with onnx-ir, whose values know the node before them and those behind them.

An edit starts with `ir.from_proto`, which copies a graph and shares its constants, and ends with
`finished`. This module loads onnx, so only the modules that edit graphs import it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.convenience import replace_nodes_and_values

Array = np.ndarray[Any, Any]


def finished(model: ir.Model) -> onnx.ModelProto:
    """The edited model without constants that nothing reads.

    Nodes that nothing reads stay: the logits of a mask graph are one, and its proof reads them.
    """
    constants = model.graph.initializers
    for name in [name for name, constant in constants.items() if not constant.uses()]:
        del constants[name]
    for constant in constants.values():
        constant.shape = constant.type = None  # its content has both
    return ir.to_proto(model)


def name_of(named: ir.Node | ir.Value) -> str:
    """The name of a node or value, which every one of our graphs has given."""
    assert named.name is not None
    return named.name


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads, without optional inputs that are left out."""
    return [value for value in node.inputs if value is not None]


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value; all our shapes are static and known."""
    assert value.shape is not None, f"{value.name} has no shape"
    return value.shape.numpy()


def array_of(constant: ir.Value) -> Array:
    """The content of a constant."""
    assert constant.const_value is not None, f"{constant.name} is no constant"
    return constant.const_value.numpy()


def producer(value: ir.Value, kind: str) -> ir.Node | None:
    """The node that makes a value, if it is of this kind."""
    node = value.producer()
    return node if node is not None and node.op_type == kind else None


def only_consumer(value: ir.Value, kind: str) -> ir.Node | None:
    """The node that reads a value, if it is the only one and of this kind."""
    nodes = value.consumers()
    return nodes[0] if [node.op_type for node in nodes] == [kind] else None


def new_constant(graph: ir.Graph, name: str, content: Any) -> ir.Value:
    """Add a constant to a graph: an array, a number, a list of numbers or a `TensorProto`."""
    tensor = ir.tensor(content, name=name)
    constant = ir.Value(name=name, const_value=tensor)
    graph.register_initializer(constant)
    return constant


def new_node(
    kind: str, inputs: Sequence[ir.Value], outputs: Sequence[str], name: str, **attributes: Any
) -> ir.Node:
    """A node with these names, which is in no graph yet."""
    values = [ir.Value(name=output) for output in outputs]
    return ir.node(kind, inputs, attributes, outputs=values, name=name)


class Rewrite:
    """Nodes and constants that take the place of nodes in a graph, and are named after one."""

    def __init__(self, replaced: ir.Node) -> None:
        assert replaced.graph is not None
        self._graph, self._scope = replaced.graph, name_of(replaced)
        self._nodes: list[ir.Node] = []

    def constant(self, name: str, content: Any) -> ir.Value:
        return new_constant(self._graph, f"{self._scope}/{name}", content)

    def node(
        self, kind: str, inputs: Sequence[ir.Value], name: str = "", **attributes: Any
    ) -> ir.Value:
        """Add a node behind those added before; without a name it has the replaced node's."""
        path = f"{self._scope}/{name}".rstrip("/")
        self._nodes.append(new_node(kind, inputs, [path], path, **attributes))
        return self._nodes[-1].outputs[0]

    def split(self, value: ir.Value, axis: int, sizes: Sequence[int], name: str) -> list[ir.Value]:
        """Add a node that splits a value into parts of these sizes."""
        paths = [f"{self._scope}/{name}_{number}" for number in range(len(sizes))]
        read = [value, self.constant("sizes", sizes)]
        self._nodes.append(new_node("Split", read, paths, f"{self._scope}/{name}", axis=axis))
        return list(self._nodes[-1].outputs)

    def replace(self, nodes: Sequence[ir.Node], result: ir.Value) -> None:
        """Put all that was added behind the last of these nodes, and remove them.

        `result` takes the name and the consumers of the last node's output.
        """
        last = nodes[-1]
        replace_nodes_and_values(self._graph, last, nodes, self._nodes, last.outputs, [result])
