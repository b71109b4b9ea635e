"""Changes that Triton needs in ONNX graphs; a bundle for one stream with a memory needs none.

A batch of Triton has any number of rows up to a limit, and its frame numbers have a second axis.
The graphs of a bundle for B streams have exactly B rows. So the adapted graphs pad their inputs
with zeros to B rows and cut their outputs to the rows of the batch. Rows do not influence each
other.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, compose, helper, numpy_helper

from mrcfa.bundle.manifest import STATE

READY = "ready"
"""Input int32 (n, 1): 0 for a row without a frame, whose state Triton leaves undefined."""
_WITHIN = "within/"
"""Prefix of all names of the original graph."""


def write_adapted(source: Path, target: Path, stateful: bool, batched: bool) -> None:
    """Write the graph in the form that Triton can serve."""
    model = onnx.load(source)
    if not stateful:
        model = without_state(model)
    if batched:
        model = padded(model)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def without_state(model: ModelProto) -> ModelProto:
    """The graph of a model without memory, with its only state, the frame number, as constant 0.

    Nothing reads that number, and without state Triton serves the graph without sequences.
    """
    graph = model.graph
    for value in [value for value in graph.input if value.name in STATE]:
        kind = value.type.tensor_type
        zeros = np.zeros(_shape(value), helper.tensor_dtype_to_np_dtype(kind.elem_type))
        graph.initializer.append(numpy_helper.from_array(zeros, value.name))
        graph.input.remove(value)
    for value in [value for value in graph.output if value.name.removesuffix("_out") in STATE]:
        graph.output.remove(value)
    return model


def padded(model: ModelProto) -> ModelProto:
    """The graph extended to any number of rows up to its own number."""
    inputs, outputs = list(model.graph.input), list(model.graph.output)
    wrapped = compose.add_prefix(model, _WITHIN, rename_nodes=False, rename_functions=False)
    graph = wrapped.graph
    (streams, *_) = _shape(inputs[0])
    before = [*_counted(inputs[0].name, streams)]
    before += [node for value in inputs for node in _padded(value)]
    after = [node for value in outputs for node in _cut(value)]
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.input.extend(_any_rows(value) for value in inputs)
    graph.output.extend(_any_rows(value) for value in outputs)
    if any(value.name == "frame" for value in inputs):
        ready = helper.make_tensor_value_info(READY, onnx.TensorProto.INT32, ["n", 1])
        graph.input.append(ready)
    return wrapped


def _counted(name: str, streams: int) -> Iterator[NodeProto]:
    """Nodes that compute the number of rows in the batch, and of rows that are missing."""
    yield helper.make_node("Shape", [name], ["rows"], start=0, end=1)
    yield _constant("streams", np.array([streams]))
    yield helper.make_node("Sub", ["streams", "rows"], ["missing"])
    yield _constant("zero", np.array([0]))


def _padded(value: ValueInfoProto) -> Iterator[NodeProto]:
    name, shape = value.name, _shape(value)
    source = name
    if name == "frame":  # an undefined frame number would be out of the schedule's range
        yield helper.make_node("Mul", [name, READY], [f"{name}/ready"])
        yield _constant("flat", np.array([-1]))
        yield helper.make_node("Reshape", [f"{name}/ready", "flat"], [f"{name}/flat"])
        source = f"{name}/flat"
    yield _constant(f"{name}/row", np.array(shape[1:], np.int64))
    yield helper.make_node("Concat", ["missing", f"{name}/row"], [f"{name}/rest"], axis=0)
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    zero = numpy_helper.from_array(np.zeros(1, kind))
    yield helper.make_node("ConstantOfShape", [f"{name}/rest"], [f"{name}/zeros"], value=zero)
    yield helper.make_node("Concat", [source, f"{name}/zeros"], [_WITHIN + name], axis=0)


def _cut(value: ValueInfoProto) -> Iterator[NodeProto]:
    name = value.name
    cut = f"{name}/rows" if name == "frame_out" else name
    yield helper.make_node("Slice", [_WITHIN + name, "zero", "rows", "zero"], [cut])
    if cut != name:
        yield _constant("column", np.array([-1, 1]))
        yield helper.make_node("Reshape", [cut, "column"], [name])


def _constant(name: str, array: NDArray[np.int64]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def _shape(value: ValueInfoProto) -> list[int]:
    return [axis.dim_value for axis in value.type.tensor_type.shape.dim]


def _any_rows(value: ValueInfoProto) -> ValueInfoProto:
    """The tensor with any number of rows, and with a second axis, which Triton requires."""
    kind, shape = value.type.tensor_type.elem_type, _shape(value)
    return helper.make_tensor_value_info(value.name, kind, ["n", *(shape[1:] or [1])])
