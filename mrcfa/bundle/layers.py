"""The layers of an engine and the bytes that they move, read from TensorRT's log of the build.

The engine itself lists them only on its GPU. A layer's outputs go through memory, so their sum over
all layers measures an engine without a GPU and without noise.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
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

_LAYER = re.compile(r"^ *Name: (?P<name>.+?), LayerType: (?P<type>\w+)(?P<rest>.*)$", re.MULTILINE)
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.+?),(?: Location: \w+,)? Dimensions: \[(?P<shape>[\d,]*)\]"
    r".*?(?:Datatype: (?P<dtype>[^,}]+?))(?:,[^}]*)? ?\}"
)
_TACTIC = re.compile(r"TacticName: (.*?)(?:, \w+:|$)")
_NODE = re.compile(r"\[ONNX Layer: (.+?)\]")
_MEMORY = re.compile(r"Total (?P<what>Activation|Weights) Memory: *(?P<bytes>\d+) bytes")
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


def layers(messages: Iterable[Message]) -> list[Layer]:
    """All layers in the log of a build with detailed profiling verbosity."""
    return [_layer(line) for message in messages for line in _LAYER.finditer(message.text)]


def plan_cost(
    found: Sequence[Layer], messages: Iterable[Message], frames: int = 1
) -> PlanCost | None:
    """The bytes that a plan's kernels move per frame, and its memory; None without any layers.

    With several frames in one pass, each frame has its share.
    """
    kernels = [layer for layer in found if layer["outputs"]]
    if not kernels:
        return None
    memory = {
        line["what"]: int(line["bytes"])
        for message in messages
        for line in _MEMORY.finditer(message.text)
    }
    return PlanCost(
        kernels=len(kernels),
        bytes_written=sum(written(layer) for layer in kernels) // frames,
        bytes_read=sum(read(layer) for layer in kernels) // frames,
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


def written(layer: Layer) -> int:
    """The bytes of a layer's outputs."""
    return sum(map(_size, layer["outputs"]))


def read(layer: Layer) -> int:
    """The bytes of a layer's inputs and constants."""
    return sum(map(_size, (*layer["inputs"], *layer["constants"])))


def _size(tensor: dict[str, Any]) -> int:
    """The bytes of a tensor. An unknown type counts as 4 bits, so sums are lower bounds."""
    return math.prod(tensor["shape"]) * _BITS.get(tensor["dtype"], 4) // 8


def _layer(line: re.Match[str]) -> Layer:
    rest = line["rest"]
    tactic = _TACTIC.search(rest)
    return {
        "name": line["name"],
        "type": line["type"],
        "tactic": tactic[1] if tactic else "",
        "nodes": _NODE.findall(rest),
        **{kind.lower(): _tensors(rest, kind) for kind in ("Inputs", "Constants", "Outputs")},
    }


def _tensors(text: str, kind: str) -> list[dict[str, Any]]:
    """The tensors in a list like `Outputs: [ { Name: x, Dimensions: [1,64], Datatype: Half }]`."""
    _, named, rest = text.partition(f"{kind}: [")
    if not named or rest.startswith("]"):
        return []
    return [
        {
            "name": tensor["name"],
            "dtype": tensor["dtype"],
            "shape": [int(size) for size in tensor["shape"].split(",") if size],
        }
        for tensor in _TENSOR.finditer(rest.partition("}],")[0] + "}")
    ]
