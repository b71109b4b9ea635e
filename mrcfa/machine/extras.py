"""Optional packages: which extra installs each, and imports that say so when one is missing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from mrcfa.errors import MrcfaError

EXTRA_OF = {
    "torch": "export",
    "onnx": "export",
    "onnx_ir": "export",
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
    "tritonclient": "triton",
    "grpc": "triton",
    "aiohttp": "view",
}


class MissingExtra(MrcfaError, ImportError):
    """An optional package is not installed."""


def install_command(extra: str) -> str:
    """What really works: the package is on no index, so it is installed from its clone."""
    return f'pip install ".[{extra}]" (in a clone of mrcfa)'


@contextmanager
def extras_named(extra_of: Mapping[str, str] = EXTRA_OF) -> Iterator[None]:
    """Imports in this block that fail for want of an optional package name its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in extra_of:
            raise
        raise MissingExtra(
            f"{package} is not installed; install it with: {install_command(extra_of[package])}"
        ) from None


def load(module: str) -> ModuleType:
    """Import a module, ours or an optional one, and name the extra if a package is missing."""
    with extras_named():
        return import_module(module)
