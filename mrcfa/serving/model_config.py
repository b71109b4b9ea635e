"""Triton's `config.pbtxt` for each model of a repository, as plain data and as text.

Tensors that the server feeds back are listed under `state` only, not under `input` and `output`.
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
NO_CUDA_GRAPHS = """\
# optimization.cuda.graphs is not set: Triton's TensorRT backend would record this model, which has
# no batches, for batch size 0, look for a graph of batch size 1, and launch none. The addresses of
# the state would allow it, because the backend copies every tensor to and from fixed buffers.
"""
"""The remark at the top of the config of a model that runs an engine."""
WAIT_US = 2000
"""Longest wait of a frame for frames of other cameras to share a batch with."""


class Token(str):
    """A value that is written without quotes, such as an enum value."""


def tensor(spec: TensorSpec, batched: bool) -> Message:
    """Entry of one tensor; its shape leaves out the batch axis, which Triton adds itself."""
    shape = spec.shape[1:] if batched else spec.shape
    return {"name": spec.name, "data_type": Token(TYPES[spec.dtype]), "dims": list(shape)}


def is_state(spec: TensorSpec) -> bool:
    return spec.name.removesuffix("_out") in STATE


def tensors(graph: Graph, batched: bool) -> dict[str, list[Message]]:
    """Entries `input` and `output` of a graph, without state."""
    return {
        "input": [tensor(spec, batched) for spec in graph.inputs if not is_state(spec)],
        "output": [tensor(spec, batched) for spec in graph.outputs if not is_state(spec)],
    }


def states(graph: Graph, batched: bool) -> list[Message]:
    """Entries `state` of a graph: zeros before the first frame, so START resets a sequence."""
    found: list[Message] = []
    for spec in graph.inputs:
        if is_state(spec):
            # Frame numbers have the batch axis only, and Triton requires one more.
            shape = spec.shape[1:] or (1,) if batched else spec.shape
            kind = {"data_type": Token(TYPES[spec.dtype]), "dims": list(shape)}
            zeros = {**kind, "zero_data": True, "name": f"{spec.name} at the start"}
            names = {"input_name": spec.name, "output_name": f"{spec.name}_out"}
            found.append({**names, **kind, "initial_state": [zeros]})
    return found


def oldest(sequences: int, idle_s: float, wait_us: int = 0) -> Message:
    """Strategy "oldest": many sequences on one instance, the longest-waiting frame first."""
    return {
        "max_sequence_idle_microseconds": round(idle_s * 1e6),
        "oldest": {"max_candidate_sequences": sequences, "max_queue_delay_microseconds": wait_us},
    }


def direct(idle_s: float) -> Message:
    """Strategy "direct": one slot of the batch per sequence; READY marks slots with a frame."""
    ready = {"kind": Token("CONTROL_SEQUENCE_READY"), "int32_false_true": [0, 1]}
    return {
        "max_sequence_idle_microseconds": round(idle_s * 1e6),
        "direct": {"max_queue_delay_microseconds": WAIT_US, "minimum_slot_utilization": 1.0},
        "control_input": [{"name": "ready", "control": [ready]}],
    }


def sequences(graph: Graph, batch: int, most: int, idle_s: float) -> Message:
    """Settings for a graph with state: "direct" if it is batched, else "oldest"."""
    strategy = direct(idle_s) if batch else oldest(most, idle_s)
    return {"sequence_batching": {**strategy, "state": states(graph, bool(batch))}}


def stateless(graph: Graph, batch: int) -> Message:
    """Settings for a graph without state: dynamic batches and a warm-up."""
    batching = {"dynamic_batching": {"max_queue_delay_microseconds": WAIT_US}} if batch else {}
    return {**batching, "model_warmup": warmup(graph, bool(batch))}


def instances(count: int, device: Device) -> list[Message]:
    kind = "KIND_GPU" if device is Device.GPU else "KIND_CPU"
    return [{"count": count, "kind": Token(kind)}]


def warmup(graph: Graph, batched: bool) -> list[Message]:
    """Warm-up request of a graph without state; Triton's warm-up gives no state to other graphs.

    The data is random, because a mask with mixed classes is the most expensive one.
    """
    inputs = []
    for entry in tensors(graph, batched)["input"]:
        value = {"data_type": entry["data_type"], "dims": entry["dims"], "random_data": True}
        inputs.append({"key": entry["name"], "value": value})
    return [{"name": "a frame", "batch_size": 1, "inputs": inputs}]


def parameters(values: Mapping[str, str]) -> list[Message]:
    return [{"key": key, "value": {"string_value": value}} for key, value in values.items()]


def ensemble(name: str, encoder: str, decoder: str, graphs: Mapping[str, Graph]) -> Message:
    """Ensemble of encoder and decoder; tensors between them keep the names of the graphs."""

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
    """The message in protobuf's text format."""
    lines = []
    for name, value in message.items():
        if isinstance(value, list) and not any(isinstance(item, Mapping) for item in value):
            lines.append(f"{indent}{name}: [ {', '.join(map(_scalar, value))} ]\n")
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                inner = to_text(item, indent + "  ")
                lines.append(f"{indent}{name} {{\n{inner}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_scalar(item)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, Token):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
