"""Triton's `config.pbtxt` for each model of a repository, as plain data and as text.

What the server feeds back stands under `state` alone: neither `input` nor `output` repeats it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mrcfa.bundle.manifest import STATE, Device, Graph, TensorSpec

Message = Mapping[str, Any]
"""Fields of a protobuf message; a list is a repeated field."""

TYPES = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "int32": "TYPE_INT32",
    "uint8": "TYPE_UINT8",
}
WAIT_US = 2000
"""How long a frame waits for those of other cameras, to share a batch with them."""


class Token(str):
    """A name that stands in the text without quotes, as enum values do."""


def tensor(spec: TensorSpec, batched: bool) -> Message:
    """Triton's own batch axis is not written."""
    shape = spec.shape[1:] if batched else spec.shape
    return {"name": spec.name, "data_type": Token(TYPES[spec.dtype]), "dims": list(shape)}


def is_state(spec: TensorSpec) -> bool:
    return spec.name.removesuffix("_out") in STATE


def tensors(graph: Graph, batched: bool) -> dict[str, list[Message]]:
    """`input` and `output` of a graph, state left out."""
    return {
        "input": [tensor(spec, batched) for spec in graph.inputs if not is_state(spec)],
        "output": [tensor(spec, batched) for spec in graph.outputs if not is_state(spec)],
    }


def states(graph: Graph, batched: bool) -> list[Message]:
    """Zeros are the state before the first frame, so a sequence's START is the whole reset."""
    found: list[Message] = []
    for spec in graph.inputs:
        if is_state(spec):
            # Frame numbers have no axis but the batch, and Triton knows no tensor without one.
            shape = spec.shape[1:] or (1,) if batched else spec.shape
            kind = {"data_type": Token(TYPES[spec.dtype]), "dims": list(shape)}
            zeros = {**kind, "zero_data": True, "name": f"{spec.name} at the start"}
            names = {"input_name": spec.name, "output_name": f"{spec.name}_out"}
            found.append({**names, **kind, "initial_state": [zeros]})
    return found


def oldest(sequences: int, idle_s: float, wait_us: int = 0) -> Message:
    """Many sequences on one instance, those that wait longest first."""
    return {
        "max_sequence_idle_microseconds": round(idle_s * 1e6),
        "oldest": {"max_candidate_sequences": sequences, "max_queue_delay_microseconds": wait_us},
    }


def direct(idle_s: float) -> Message:
    """A slot of the batch for each sequence; READY tells which slots have a frame."""
    ready = {"kind": Token("CONTROL_SEQUENCE_READY"), "int32_false_true": [0, 1]}
    return {
        "max_sequence_idle_microseconds": round(idle_s * 1e6),
        "direct": {"max_queue_delay_microseconds": WAIT_US, "minimum_slot_utilization": 1.0},
        "control_input": [{"name": "ready", "control": [ready]}],
    }


def sequences(graph: Graph, batch: int, most: int, idle_s: float) -> Message:
    """How a graph with a state is served: a batched one by slots, a lone one to many in turn."""
    strategy = direct(idle_s) if batch else oldest(most, idle_s)
    return {"sequence_batching": {**strategy, "state": states(graph, bool(batch))}}


def stateless(graph: Graph, batch: int) -> Message:
    """How a graph without one is served."""
    gathers = {"dynamic_batching": {"max_queue_delay_microseconds": WAIT_US}} if batch else {}
    return {**gathers, "model_warmup": warmup(graph, bool(batch))}


def instances(count: int, device: Device) -> list[Message]:
    kind = "KIND_GPU" if device is Device.GPU else "KIND_CPU"
    return [{"count": count, "kind": Token(kind)}]


def warmup(graph: Graph, batched: bool) -> list[Message]:
    """For graphs without state; Triton's warm-up passes by its sequences, so no state would come.

    Random data, because a mask costs more the more its classes are mixed.
    """
    inputs = [
        {"key": each["name"], "value": {k: each[k] for k in ("data_type", "dims")}}
        for each in tensors(graph, batched)["input"]
    ]
    for each in inputs:
        each["value"] = {**each["value"], "random_data": True}
    return [{"name": "a frame", "batch_size": 1, "inputs": inputs}]


def parameters(values: Mapping[str, str]) -> list[Message]:
    return [{"key": key, "value": {"string_value": value}} for key, value in values.items()]


def ensemble(name: str, encoder: str, decoder: str, graphs: Mapping[str, Graph]) -> Message:
    """`image` to the answer; what lies between has the graphs' own names."""

    def step(model: str, graph: Graph) -> Message:
        return {
            "model_name": model,
            "model_version": -1,
            "input_map": _same(graph.inputs),
            "output_map": _same(graph.outputs),
        }

    steps = [step(encoder, graphs["encoder"]), step(decoder, graphs["decoder"])]
    return {"name": name, "platform": "ensemble", "ensemble_scheduling": {"step": steps}}


def _same(specs: Sequence[TensorSpec]) -> list[Message]:
    return [{"key": spec.name, "value": spec.name} for spec in specs if not is_state(spec)]


def to_text(message: Message, indent: str = "") -> str:
    """Protobuf's text format."""
    lines = []
    for name, value in message.items():
        if isinstance(value, list) and not any(isinstance(each, Mapping) for each in value):
            lines.append(f"{indent}{name}: [ {', '.join(map(_scalar, value))} ]\n")
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping):
                inner = to_text(each, indent + "  ")
                lines.append(f"{indent}{name} {{\n{inner}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_scalar(each)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, Token):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
