"""GPUs by name: their compute capability, and what a Jetson needs instead of a cross-build."""

import re
from difflib import get_close_matches

from mrcfa.errors import InvalidValue, named

_FAMILIES: dict[int, tuple[str, ...]] = {
    72: ("Jetson AGX Xavier", "Jetson Xavier NX"),
    75: (
        *(f"Quadro RTX {number}" for number in (3000, 4000, 5000, 6000, 8000)),
        *(f"T{number}" for number in (4, 400, 500, 550, 600, 1000, 1200, 2000)),
        *(f"Quadro T{number}" for number in (1000, 2000)),
        *(f"GeForce RTX {number}" for number in (2060, 2070, 2080)),
        *(f"GeForce GTX {number}" for number in (1630, 1650, 1660)),
        *("GeForce MX450", "GeForce MX550", "Titan RTX"),
    ),
    80: ("A30", "A100", "A800"),
    86: (
        *(
            f"RTX A{number}"
            for number in (400, 500, 1000, 2000, 3000, 4000, 4500, 5000, 5500, 6000)
        ),
        *(f"GeForce RTX {number}" for number in (3050, 3060, 3070, 3080, 3090)),
        *("GeForce RTX 2050", "GeForce MX570"),  # GA107, as the RTX 3050
        *("A2", "A10", "A10G", "A16", "A40"),
    ),
    87: ("Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano", "Jetson Orin"),
    89: (
        *(f"RTX {number} Ada" for number in (500, 1000, 2000, 3000, 3500)),
        *(f"RTX {number} Ada" for number in (4000, 4500, 5000, 5880, 6000)),
        *(f"GeForce RTX {number}" for number in (4050, 4060, 4070, 4080, 4090)),
        "GeForce RTX 3050 A",  # AD106
        *("L2", "L4", "L20", "L40", "L40S"),
    ),
    90: ("H100", "H200", "GH200"),
    100: ("B200", "GB200"),
    103: ("B300", "GB300"),
    110: ("Jetson AGX Thor", "Jetson T5000", "Jetson T4000", "Jetson Thor"),
    120: (
        *(f"RTX PRO {number}" for number in (500, 1000, 2000, 3000, 4000, 4500, 5000, 6000)),
        *(f"GeForce RTX {number}" for number in (5050, 5060, 5070, 5080, 5090)),
    ),
    121: ("GB10", "DGX Spark"),
}
GPUS = {name: sm for sm, names in _FAMILIES.items() for name in names}
"""Name -> compute capability without the dot."""

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
    *("with", "design", "sff", "d", "pcie", "nvl", "sxm4", "sxm5", "hbm3"),
}
"""Words of a GPU's name that do not change its compute capability."""


def compute_capability(name: str) -> int:
    """`quadro rtx 6000` or the name that the driver reports -> 75."""
    titles = {_plain(other): other for other in GPUS}
    if (plain := _plain(name)) in titles:
        return GPUS[titles[plain]]
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
    words = re.findall(r"[a-z0-9]+", name.lower())
    return " ".join(
        word for word in words if word not in _UNTELLING and not re.fullmatch(r"\d+gb", word)
    )
