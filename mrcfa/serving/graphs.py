"""Changes that Triton asks of ONNX graphs: none for a lone bundle with a memory.

Triton's batches have any number of rows up to their limit, and its frame numbers a second axis. The
graphs of a bundle for B streams have B rows: so what comes is padded with zeros to B, and what goes
is cut to the rows that came. Rows do not mix, so the others do not notice.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, compose, helper, numpy_helper

from mrcfa.bundle.manifest import STATE

READY = "ready"
"""int32 (n, 1), 0 for a row without a frame, whose state Triton leaves undefined."""
_WITHIN = "within/"
"""What the names of the graph as it was begin with."""


def write_adapted(source: Path, target: Path, stateful: bool, batched: bool) -> None:
    """The graph as Triton can serve it."""
    model = onnx.load(source)
    if not stateful:
        model = without_state(model)
    if batched:
        model = padded(model)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def without_state(model: ModelProto) -> ModelProto:
    """A model without memory feeds nothing but its frame number back, which nothing reads.

    It becomes the constant 0, so that Triton serves the graph without sequences.
    """
    graph = model.graph
    for value in [each for each in graph.input if each.name in STATE]:
        kind = value.type.tensor_type
        zeros = np.zeros(_shape(value), helper.tensor_dtype_to_np_dtype(kind.elem_type))
        graph.initializer.append(numpy_helper.from_array(zeros, value.name))
        graph.input.remove(value)
    for value in [each for each in graph.output if each.name.removesuffix("_out") in STATE]:
        graph.output.remove(value)
    return model


def padded(model: ModelProto) -> ModelProto:
    """The graph for any number of rows up to its own."""
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
    """How many rows came, and how many are missing."""
    yield helper.make_node("Shape", [name], ["rows"], start=0, end=1)
    yield _constant("streams", np.array([streams]))
    yield helper.make_node("Sub", ["streams", "rows"], ["missing"])
    yield _constant("zero", np.array([0]))


def _padded(value: ValueInfoProto) -> Iterator[NodeProto]:
    name, shape = value.name, _shape(value)
    come = name
    if name == "frame":  # a frame number that is none would be out of the schedule's range
        yield helper.make_node("Mul", [name, READY], [f"{name}/ready"])
        yield _constant("flat", np.array([-1]))
        yield helper.make_node("Reshape", [f"{name}/ready", "flat"], [f"{name}/flat"])
        come = f"{name}/flat"
    yield _constant(f"{name}/row", np.array(shape[1:], np.int64))
    yield helper.make_node("Concat", ["missing", f"{name}/row"], [f"{name}/rest"], axis=0)
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    zero = numpy_helper.from_array(np.zeros(1, kind))
    yield helper.make_node("ConstantOfShape", [f"{name}/rest"], [f"{name}/zeros"], value=zero)
    yield helper.make_node("Concat", [come, f"{name}/zeros"], [_WITHIN + name], axis=0)


def _cut(value: ValueInfoProto) -> Iterator[NodeProto]:
    name = value.name
    goes = f"{name}/rows" if name == "frame_out" else name
    yield helper.make_node("Slice", [_WITHIN + name, "zero", "rows", "zero"], [goes])
    if goes != name:
        yield _constant("column", np.array([-1, 1]))
        yield helper.make_node("Reshape", [goes, "column"], [name])


def _constant(name: str, array: NDArray[np.int64]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def _shape(value: ValueInfoProto) -> list[int]:
    return [axis.dim_value for axis in value.type.tensor_type.shape.dim]


def _any_rows(value: ValueInfoProto) -> ValueInfoProto:
    """Triton knows no tensor without an axis beside the batch."""
    kind, shape = value.type.tensor_type.elem_type, _shape(value)
    return helper.make_tensor_value_info(value.name, kind, ["n", *(shape[1:] or [1])])
