"""ONNX Runtime's WebGPU provider: a library that is registered, and the adapter that it takes."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import onnxruntime as ort

from mrcfa.backends.one_node import FP16_NODE, ONE_NODE
from mrcfa.backends.records import BACKENDS
from mrcfa.bundle import Unfit
from mrcfa.machine.extras import load
from mrcfa.machine.vulkan import NO_VULKAN, vulkan_devices

PLACE = BACKENDS["onnxruntime"].place("webgpu")
SOFTWARE = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"
"""The provider takes an adapter that is software only if this variable of its own is 1."""

TURN = RLock()
"""Held by the thread that uses the provider. All sessions of a process share one device, and two of
them that run at the same time crash it."""


class Buffers(dict[str, Any]):
    """Tensors on the adapter by name, which are released while no other thread uses it."""

    def __del__(self) -> None:
        with TURN:
            self.clear()


_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def in_turn(
    method: Callable[Concatenate[_Self, _Arguments], _Answer],
) -> Callable[Concatenate[_Self, _Arguments], _Answer]:
    """A method that runs, and drops its own tensors, while its object's `turn` is held."""

    @wraps(method)
    def called(self: _Self, /, *args: _Arguments.args, **more: _Arguments.kwargs) -> _Answer:
        with self.turn:  # type: ignore[attr-defined]
            return method(self, *args, **more)

    return called


@dataclass(frozen=True)
class Adapter:
    """The GPU that WebGPU takes, or the software in its place."""

    name: str
    software: bool
    """True if a CPU does the work."""
    fp16: bool
    """True if its shaders compute in FP16."""

    def __str__(self) -> str:
        return f"{self.name}, software" if self.software else self.name


def device() -> Any:
    """ONNX Runtime's device of this provider. The provider chooses the GPU behind it itself."""
    _register()
    for found in ort.get_ep_devices():
        if found.ep_name == PLACE.runtime_name:
            return found
    raise Unfit(
        "WebGPU finds no GPU here; install the GPU's driver (on Linux with Vulkan), or choose "
        f"onnxruntime:cpu; a software adapter is used only with {SOFTWARE}=1"
    )


@cache
def adapter() -> Adapter:
    """Facts about the adapter, from a trial of one node in each precision."""
    with TURN:
        behind, devices = device().device, vulkan_devices()
        if devices == []:
            raise Unfit(f"{NO_VULKAN}; or choose onnxruntime:cpu")
        try:
            _try(ONE_NODE, np.float32)
        except Exception as error:  # ONNX Runtime raises a family of unrelated types
            raise Unfit(
                f"WebGPU does not start here: {_first_line(error)}; install a newer driver of the "
                "GPU, or choose onnxruntime:cpu"
            ) from None
        fp16 = False
        with suppress(Exception):
            _try(FP16_NODE, np.float16)
            fp16 = True
    name, software = behind.metadata.get("Description") or behind.vendor, False
    for first in (devices or [])[:1]:
        name, software = first.name, first.software
    is_cpu = behind.type == ort.OrtHardwareDeviceType.CPU
    return Adapter(_short(name or "unknown adapter"), software or is_cpu, fp16)


@cache
def _register() -> None:
    library = load(PLACE.library).get_library_path()
    if not hasattr(ort, "register_execution_provider_library"):
        raise Unfit(
            f"ONNX Runtime {ort.__version__} is too old for WebGPU; install 1.31 or later, or "
            "choose onnxruntime:cpu"
        )
    ort.set_default_logger_severity(3)  # it would warn of the switch for software adapters
    try:
        ort.register_execution_provider_library("mrcfa-webgpu", library)
    except Exception as error:
        raise Unfit(
            f"ONNX Runtime {ort.__version__} does not load {library}: {_first_line(error)}; update "
            "both packages, or choose onnxruntime:cpu"
        ) from None
    finally:
        ort.set_default_logger_severity(2)


def _try(graph: bytes, dtype: type) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices([device()], {})
    session = ort.InferenceSession(graph, options, enable_fallback=0)
    session.run(None, {"x": np.ones(2, dtype)})


def _short(name: str) -> str:
    """`AMD Radeon RX 6600 (RADV NAVI23)` -> `AMD Radeon RX 6600`."""
    return re.sub(r" \([^)]*\)$", "", name).removesuffix(" Device")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
