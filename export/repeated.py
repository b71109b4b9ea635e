"""A part of a graph that is traced once and copied to each of its calls.

Tracing takes a hundredth of a second for a node. The groups of tokens of a large frame have ten
thousand nodes, and one group differs from the next only in its inputs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor, nn

DOMAIN, VERSION = "mrcfa.repeated", 1


class Spec(NamedTuple):
    """Shape and type of a tensor that is not computed yet."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Part(Protocol):
    """A module that knows shapes and types of its outputs without computing them."""

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]: ...

    def outputs(self, *inputs: Tensor) -> Sequence[Spec]: ...


class Repeated(nn.Module):
    """A part, or a call of it while a graph is traced. The name is that of the call's operator."""

    part: Part

    def __init__(self, part: Part, name: str) -> None:
        super().__init__()
        self.part, self.name = part, name

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        if not torch.onnx.is_in_onnx_export():
            return self.part(*inputs)
        outputs = self.part.outputs(*inputs)
        return torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{self.name}",
            inputs,
            dtypes=[spec.dtype for spec in outputs],
            shapes=[spec.shape for spec in outputs],
            version=VERSION,
        )


Trace = Callable[[nn.Module, dict[str, Tensor], Sequence[str]], onnx.ModelProto]
"""Traces a module with named inputs; the sequence names its outputs."""


def written_out(model: onnx.ModelProto, module: nn.Module, trace: Trace) -> onnx.ModelProto:
    """A module's traced graph with the nodes of a part in place of each call.

    A part is traced once for each set of input shapes: the last group may have fewer tokens.
    """
    parts = {call.name: call.part for call in module.modules() if isinstance(call, Repeated)}
    if not parts:
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    graph = whole.graph
    kinds = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input)}
    bodies: dict[tuple[bytes, ...], onnx.GraphProto] = {}
    del graph.node[:]
    for node in model.graph.node:
        if node.domain != DOMAIN:
            graph.node.append(node)
            continue
        read = [kinds[name] for name in node.input]
        key = (node.op_type.encode(), *(kind.SerializeToString() for kind in read))
        if key not in bodies:
            bodies[key] = _traced(parts[node.op_type], read, len(node.output), trace)
            _rename_constants(bodies[key], f"{node.op_type}_{len(bodies)}")
            graph.initializer.extend(bodies[key].initializer)
        graph.node.extend(_copies(node, bodies[key]))
    for item in [item for item in whole.opset_import if item.domain == DOMAIN]:
        whole.opset_import.remove(item)
    return whole


def _traced(
    part: Part, read: Sequence[onnx.TypeProto.Tensor], outputs: int, trace: Trace
) -> onnx.GraphProto:
    assert isinstance(part, nn.Module)
    inputs = {f"input_{number}": _zeros(kind) for number, kind in enumerate(read)}
    return trace(part, inputs, [f"output_{number}" for number in range(outputs)]).graph


def _zeros(kind: onnx.TypeProto.Tensor) -> Tensor:
    shape = [dim.dim_value for dim in kind.shape.dim]
    return torch.from_numpy(np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type)))


def _rename_constants(body: onnx.GraphProto, scope: str) -> None:
    """Give constants a prefix that all calls of a body share, and no other body has."""
    names = {constant.name: f"{scope}/{constant.name}" for constant in body.initializer}
    for constant in body.initializer:
        constant.name = names[constant.name]
    for node in body.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _copies(call: onnx.NodeProto, body: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    names = {constant.name: constant.name for constant in body.initializer}
    names |= {value.name: name for value, name in zip(body.input, call.input, strict=True)}
    names |= {value.name: name for value, name in zip(body.output, call.output, strict=True)}
    for node in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for field in (copy.input, copy.output):
            field[:] = [name and names.get(name, f"{call.name}/{name}") for name in field]
        yield copy
