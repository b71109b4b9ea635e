"""The compute capability of a GPU by any of its names, and what a Jetson needs instead."""

import re
from difflib import get_close_matches

from mrcfa.errors import InvalidValue, named
from mrcfa.machine.gpu_models import COMPUTE_CAPABILITIES

_ON_DEVICE = (
    "TensorRT builds for it on the device alone and TensorRT-RTX does not know it: "
    "copy the bundle there and run, with {} or later: mrcfa build"
)
JETSONS = {
    72: "Jetson Xavier: its last JetPack, 5, has TensorRT 8.5 and mrcfa needs 10.3; "
    "run the bundle there with ONNX Runtime",
    87: f"Jetson Orin: {_ON_DEVICE.format('JetPack 6.1')}",
    110: f"Jetson Thor: {_ON_DEVICE.format('JetPack 7')}",
}
"""Compute capability -> why its engines cannot be built elsewhere, and what to do."""

_UNTELLING = {
    *("nvidia", "geforce", "tesla", "jetson", "ti", "super", "blackwell", "generation", "gpu"),
    *("laptop", "mobile", "max", "q", "workstation", "server", "edition", "developer", "kit"),
    *("with", "design", "sff", "d", "pcie", "embedded", "oem", "v2", "3e", "active", "ac", "lc"),
}
_MEMORY_OR_SOCKET = re.compile(r"\d+gb?|hbm\d\w?|sxm\d?|nvl\d*")
"""Words of a GPU's name that do not change its compute capability."""


def compute_capability(name: str) -> int:
    """`quadro rtx 6000` or the name that the driver reports -> 75."""
    titles = {_plain(other): other for other in COMPUTE_CAPABILITIES}
    if (plain := _plain(name)) in titles:
        return COMPUTE_CAPABILITIES[titles[plain]]
    words = set(plain.split())
    wider = [other for other in titles if words and words <= set(other.split())]
    near = wider or get_close_matches(plain, titles, n=4, cutoff=0.5)
    hint = f"did you mean {named(titles[other] for other in near)}? " if near else ""
    raise InvalidValue(f"unknown GPU {name!r}; {hint}--sm 75 names a compute capability directly")


def parse_sm(text: str) -> int:
    """`75`, `7.5`, `sm75` or `sm_75` -> 75."""
    digits = text.lower().removeprefix("sm").removeprefix("_").replace(".", "", 1)
    if not digits.isdecimal():
        raise InvalidValue(f"{text!r} is no compute capability; write it like 75 or 8.6")
    return int(digits)


def _plain(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=\d)ti\b", " ti", name.lower()))
    return " ".join(
        word for word in words if word not in _UNTELLING and not _MEMORY_OR_SOCKET.fullmatch(word)
    )
