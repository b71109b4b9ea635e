"""MRCFA video semantic segmentation: the reference model, the bundle format and the runtime.

Importing this package needs numpy alone; torch and the runtimes load with the name that uses them.
"""

import os
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it once, when it loads

_HOME = {
    "Bundle": "mrcfa.bundle.bundle",
    "Config": "mrcfa.model.config",
    "MRCFA": "mrcfa.model.mrcfa",
    "MrcfaError": "mrcfa.errors",
    "Stream": "mrcfa.stream.stream",
    "Streams": "mrcfa.stream.streams",
    "load_weights": "mrcfa.model.weights",
    "preset": "mrcfa.data.presets",
    "save_weights": "mrcfa.model.weights",
}
__all__ = [
    "MRCFA",
    "Bundle",
    "Config",
    "MrcfaError",
    "Stream",
    "Streams",
    "__version__",
    "load_weights",
    "preset",
    "save_weights",
]

if TYPE_CHECKING:
    from mrcfa.bundle import Bundle
    from mrcfa.data.presets import preset
    from mrcfa.errors import MrcfaError
    from mrcfa.model.config import Config
    from mrcfa.model.mrcfa import MRCFA
    from mrcfa.model.weights import load_weights, save_weights
    from mrcfa.stream.stream import Stream
    from mrcfa.stream.streams import Streams


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mrcfa' has no attribute {name!r}")
    from mrcfa.machine.extras import load

    value = globals()[name] = getattr(load(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
