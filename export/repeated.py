"""A part of a graph that is traced once and written out at each of its calls.

Tracing takes a hundredth of a second for a node, and the groups of tokens of a large frame have ten
thousand, which differ in nothing but what they read.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import onnx
import torch
from onnx import TensorProto
from torch import Tensor, nn

DOMAIN, VERSION = "mrcfa.repeated", 1


class Spec(NamedTuple):
    """What is known of a tensor before it is computed."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Part(Protocol):
    """A module that can say what it answers without computing it."""

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]: ...

    def answers(self, *inputs: Tensor) -> Sequence[Spec]: ...


class Repeated(nn.Module):
    """A part; while a graph is traced, a call of it."""

    part: Part

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        if not torch.onnx.is_in_onnx_export():
            return self.part(*inputs)
        answers = self.part.answers(*inputs)
        return torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{type(self.part).__name__}",
            inputs,
            dtypes=[each.dtype for each in answers],
            shapes=[each.shape for each in answers],
            version=VERSION,
        )


Trace = Callable[[nn.Module, dict[str, Tensor], Sequence[str]], onnx.ModelProto]
"""Of a module with these inputs, whose outputs get these names."""


def written_out(model: onnx.ModelProto, module: nn.Module, trace: Trace) -> onnx.ModelProto:
    """A module's traced graph with the nodes of a part in place of each call.

    A part is traced once for each kind of inputs: a last group may have fewer tokens than others.
    """
    repeated = [each.part for each in module.modules() if isinstance(each, Repeated)]
    parts = {type(part).__name__: part for part in repeated}
    assert len(parts) == len(repeated), "calls name the class of their part"
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
    part: Part, read: Sequence[onnx.TypeProto.Tensor], answers: int, trace: Trace
) -> onnx.GraphProto:
    assert isinstance(part, nn.Module)
    inputs = {
        f"input_{number}": torch.zeros(
            [dim.dim_value for dim in kind.shape.dim], dtype=_TORCH[kind.elem_type]
        )
        for number, kind in enumerate(read)
    }
    return trace(part, inputs, [f"output_{number}" for number in range(answers)]).graph


_TORCH: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.FLOAT16: torch.float16,
}


def _rename_constants(body: onnx.GraphProto, scope: str) -> None:
    """Calls share them, and no other body does."""
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
