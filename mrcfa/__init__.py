"""MRCFA video semantic segmentation: the reference model, the bundle format and the runtime.

Importing this package needs numpy alone; torch and the runtimes load with the name that uses them.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "preset": "mrcfa.config",
    "MRCFA": "mrcfa.model",
    "load_weights": "mrcfa.weights",
    "save_weights": "mrcfa.weights",
    "Stream": "mrcfa.stream",
}
__all__ = ["MRCFA", "Stream", "__version__", "load_weights", "preset", "save_weights"]

if TYPE_CHECKING:
    from mrcfa.config import preset
    from mrcfa.model import MRCFA
    from mrcfa.stream import Stream
    from mrcfa.weights import load_weights, save_weights


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mrcfa' has no attribute {name!r}")
    from mrcfa.extras import load

    value = globals()[name] = getattr(load(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
