"""The layers of an engine and the bytes that they move, read from TensorRT's log of the build.

The engine itself lists them only on its GPU. A layer's outputs go through memory, so their sum over
all layers measures an engine without a GPU and without noise.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mrcfa.bundle.flavours import Message
from mrcfa.bundle.manifest import PlanCost
from mrcfa.bundle.precisions import EIGHT_BITS
from mrcfa.data.decoding import from_json
from mrcfa.errors import Damaged

Layer = dict[str, Any]
"""`name`, `type`, `tactic`, the ONNX `nodes` it computes, and `inputs`, `constants` and `outputs`,
each with name, dtype and shape."""

_LISTING = re.compile(r"^Layers:\n(?P<lines>(?:.+(?:\n|$))+)", re.MULTILINE)
_LAYER = re.compile(r"^ *Name: (?P<name>.+?), LayerType: (?P<type>\w+)(?P<rest>.*)$", re.MULTILINE)
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.+?),(?: Location: \w+,)? Dimensions: \[(?P<shape>[\d,]*)\]"
    r".*?(?:Datatype: (?P<dtype>[^,}]+?))(?:,[^}]*)? ?\}"
)
_TACTIC = re.compile(r"TacticName: (.*?)(?:, \w+:|$)")
_NODE = re.compile(r"\[ONNX Layer: (.+?)\]")
_MEMORY = re.compile(r"Total (?P<what>Activation|Weights) Memory: *(?P<bytes>\d+) bytes")
_SHOWN = 40
"""The most characters of an unread line that a message repeats."""
_PRODUCTS = ("gemm", "correlation", "runtime_fusion")
_ATTENTION = "_mha"
_NARROW = {record.tensorrt_type for record in EIGHT_BITS.values()}
_BITS = {
    "Float": 32,
    "Half": 16,
    "BFloat16": 16,
    "Int64": 64,
    "Int32": 32,
    "Int8": 8,
    "UInt8": 8,
    "Bool": 8,
    "FP8": 8,
    "Int4": 4,
    "FP4": 4,
}
_TYPES = {name.lower(): name for name in _BITS} | {
    "fp32": "Float",
    "fp16": "Half",
    "bf16": "BFloat16",
}
"""The words for a type, of which one stands in a phrase such as `Row major linear FP16`."""
_WHOLE_REGION = "Myelin"
"""The type of a layer that stands for many kernels, whose tensors are not listed."""


@dataclass(frozen=True)
class BuildLog:
    """The layers of a plan, as TensorRT's log of its build lists them."""

    layers: list[Layer]
    cost: PlanCost | None
    """None if anything could not be read: the sum of the rest would look cheaper than the plan."""
    unread: tuple[str, ...]
    """Descriptions of what could not be read."""


def read_log(messages: Sequence[Message], frames: int = 1) -> BuildLog:
    """The layers in the log of a build with detailed profiling verbosity, and their cost.

    With several frames in one pass, each frame has its share of the bytes.
    """
    lines = [line for message in messages for line in _LAYER.finditer(message.text)]
    found = [_layer(line) for line in lines]
    unread = tuple(dict.fromkeys(_unread(messages, lines, found)))
    return BuildLog(found, None if unread else _cost(found, messages, frames), unread)


def _unread(
    messages: Iterable[Message], lines: Iterable[re.Match[str]], found: Sequence[Layer]
) -> Iterator[str]:
    """Whatever the log says of layers and `found` lacks: a changed format must not look cheap."""
    for message in messages:
        for listing in _LISTING.finditer(message.text):
            others = (line for line in listing["lines"].splitlines() if not _LAYER.match(line))
            yield from (f"the line {line[:_SHOWN]!r}" for line in others)
    for line in lines:
        for kind in ("Inputs", "Constants", "Outputs"):
            listed = _listed(line["rest"], kind)
            if listed is None and kind != "Constants":  # which not every version lists
                yield f"the {kind.lower()} of {line['name']}"
            elif (listed or "").count("Name:") != len(_TENSOR.findall(listed or "")):
                yield f"tensors among the {kind.lower()} of {line['name']}"
    yield from (f"the kernels of {e['name']}" for e in found if e["type"] == _WHOLE_REGION)
    tensors = [tensor for layer in found for tensor in _tensors_of(layer)]
    yield from (f"the type {each['dtype']}" for each in tensors if each["dtype"] not in _BITS)
    if not any(layer["outputs"] for layer in found):
        yield "any layer with an output"


def _cost(found: Sequence[Layer], messages: Iterable[Message], frames: int) -> PlanCost:
    kernels = [layer for layer in found if layer["outputs"]]
    memory = {
        line["what"]: int(line["bytes"])
        for message in messages
        for line in _MEMORY.finditer(message.text)
    }
    return PlanCost(
        kernels=len(kernels),
        bytes_written=sum(map(_written, kernels)) // frames,
        bytes_read=sum(map(_read, kernels)) // frames,
        activation_bytes=memory.get("Activation"),
        weights_bytes=memory.get("Weights"),
    )


def read_layers(content: bytes, path: Path) -> Mapping[str, Sequence[Layer]]:
    """The layers of each graph from the file of a build, with the fields that `inspect` shows."""
    try:
        read = from_json(_Listing, {"parts": json.loads(content)})
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read ({error}); build the engine anew") from None
    return {part: [asdict(layer) for layer in layers] for part, layers in read.parts.items()}


@dataclass(frozen=True)
class _Tensor:
    dtype: str


@dataclass(frozen=True)
class _Shown:
    name: str
    type: str
    inputs: tuple[_Tensor, ...]


@dataclass(frozen=True)
class _Listing:
    parts: Mapping[str, tuple[_Shown, ...]]


def narrow_products(found: Iterable[Layer]) -> int:
    """The number of matrix products, convs and attentions that read 8 bits."""
    return sum(
        (layer["type"] in _PRODUCTS or _ATTENTION in layer["name"])
        and any(tensor["dtype"] in _NARROW for tensor in layer["inputs"][:1])
        for layer in found
    )


def _written(layer: Layer) -> int:
    return sum(map(_size, layer["outputs"]))


def _read(layer: Layer) -> int:
    return sum(map(_size, (*layer["inputs"], *layer["constants"])))


def _tensors_of(layer: Layer) -> Iterator[dict[str, Any]]:
    return itertools.chain(layer["inputs"], layer["constants"], layer["outputs"])


def _size(tensor: dict[str, Any]) -> int:
    """The bytes of a tensor."""
    return math.prod(tensor["shape"]) * _BITS[tensor["dtype"]] // 8


def _layer(line: re.Match[str]) -> Layer:
    rest = line["rest"]
    tactic = _TACTIC.search(rest)
    return {
        "name": line["name"],
        "type": line["type"],
        "tactic": tactic[1] if tactic else "",
        "nodes": _NODE.findall(rest),
        **{
            kind.lower(): _tensors(_listed(rest, kind) or "")
            for kind in ("Inputs", "Constants", "Outputs")
        },
    }


def _listed(text: str, kind: str) -> str | None:
    """The list in `Outputs: [ { Name: x, Dimensions: [1,64], Datatype: Half }]`, if it is there."""
    _, named, rest = text.partition(f"{kind}: [")
    if not named:
        return None
    return "" if rest.startswith("]") else rest.partition("}],")[0] + "}"


def _tensors(listed: str) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor["name"],
            "dtype": _type_of(tensor["dtype"]),
            "shape": [int(size) for size in tensor["shape"].split(",") if size],
        }
        for tensor in _TENSOR.finditer(listed)
    ]


def _type_of(text: str) -> str:
    """The type that TensorRT names, in a word or in a phrase; an unknown text stays as it is."""
    return next((_TYPES[word] for word in text.lower().split() if word in _TYPES), text)
