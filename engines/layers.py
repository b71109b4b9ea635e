"""The layers of an engine, read from what TensorRT says while it builds.

An engine can be asked for them as well, but only where its GPU is.
"""

import re
from collections.abc import Iterable
from typing import Any

from mrcfa.flavours import Message

Layer = dict[str, Any]
"""`name`, `type`, `tactic`, the ONNX `nodes` it computes, and `outputs` with dtype and shape."""

_LAYER = re.compile(r"^ *Name: (?P<name>.+?), LayerType: (?P<type>\w+)(?P<rest>.*)$", re.MULTILINE)
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.+?),(?: Location: \w+,)? Dimensions: \[(?P<shape>[\d,]*)\]"
    r".*?(?:Datatype: (?P<dtype>[^,}]+?))(?:,[^}]*)? ?\}"
)
_TACTIC = re.compile(r"TacticName: (.*?)(?:, \w+:|$)")
_NODE = re.compile(r"\[ONNX Layer: (.+?)\]")


def layers(messages: Iterable[Message]) -> list[Layer]:
    """Needs the messages of a build with detailed profiling verbosity."""
    return [_layer(line) for message in messages for line in _LAYER.finditer(message.text)]


def _layer(line: re.Match[str]) -> Layer:
    rest = line["rest"]
    tactic = _TACTIC.search(rest)
    return {
        "name": line["name"],
        "type": line["type"],
        "tactic": tactic[1] if tactic else "",
        "nodes": _NODE.findall(rest),
        "outputs": [
            {
                "name": tensor["name"],
                "dtype": tensor["dtype"],
                "shape": [int(size) for size in tensor["shape"].split(",") if size],
            }
            for tensor in _TENSOR.finditer(
                rest.partition("Outputs: [")[2].partition("}],")[0] + "}"
            )
        ],
    }
