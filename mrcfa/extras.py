"""Optional packages: which extra installs each, and imports that say so when one is missing."""

from importlib import import_module
from types import ModuleType

from mrcfa.errors import MrcfaError

EXTRA_OF = {
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnxsim": "export",
    "safetensors": "export",
    "onnxruntime": "cpu",
    "tensorrt_rtx": "rtx",
    "tensorrt": "tensorrt",
    "cuda": "rtx",
    "av": "video",
    "PIL": "video",
    "matplotlib": "report",
}


class MissingExtra(MrcfaError, ImportError):
    """An optional package is not installed."""


def install_command(package: str) -> str:
    return f'pip install "mrcfa[{EXTRA_OF[package]}]"'


def load(module: str) -> ModuleType:
    """Import a module, ours or an optional one, and name the extra if a package is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(
            f"{package} is not installed; install it with: {install_command(package)}"
        ) from None
