"""Optional packages: the extra that installs each, and imports whose errors name it."""

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
    "onnxruntime_ep_webgpu": "webgpu",
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
    """The command that installs an extra; mrcfa is on no package index, so it needs a clone."""
    return f'pip install ".[{extra}]" (in a clone of mrcfa)'


@contextmanager
def extras_named(extra_of: Mapping[str, str] = EXTRA_OF) -> Iterator[None]:
    """Make failed imports of optional packages in this block name the extra to install."""
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
    """Import a module; if an optional package is missing, the error names its extra."""
    with extras_named():
        return import_module(module)
