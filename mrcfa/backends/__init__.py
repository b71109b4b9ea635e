"""What runs a bundle. Parity and speed are written once, against `Backend`."""

from abc import ABC, abstractmethod
from inspect import signature
from threading import Lock
from time import perf_counter
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError, named
from mrcfa.extras import MissingExtra, load

Image = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]


class OnDevice(Protocol):
    """An array on the GPU: a torch tensor, a CuPy array, a pycuda GPUArray."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class Backend(ABC):
    """One loaded bundle. It holds no stream's state, so any number of streams may share it."""

    name: str
    """What runs and where, such as `onnxruntime (CPU, fp32)`."""
    takes_device_frames = False
    """Whether an image may also be `OnDevice`."""

    @abstractmethod
    def start(self) -> Any:
        """The state before the first frame."""

    @abstractmethod
    def encode(self, image: Image) -> Any:
        """uint8 (h, w, 3) of the bundle's frame size -> what `decode` wants of it."""

    @abstractmethod
    def decode(self, features: Any, state: Any) -> tuple[Arrays, Any]:
        """`mask` (h, w) or `logits` (classes, H/4, W/4), and the state for the next frame."""

    def step(self, image: Image, state: Any) -> tuple[Arrays, Any]:
        return self.decode(self.encode(image), state)

    def timed_step(self, image: Image, state: Any) -> tuple[Arrays, Any, dict[str, float]]:
        """`step`, and the seconds that its parts took; on a GPU the device is asked instead."""
        began = perf_counter()
        features = self.encode(image)
        encoded = perf_counter()
        outputs, state = self.decode(features, state)
        return outputs, state, {"encoder": encoded - began, "decoder": perf_counter() - encoded}


BACKENDS = {
    "tensorrt": ("mrcfa.backends.tensorrt", "TensorRTBackend"),
    "onnxruntime": ("mrcfa.backends.onnxruntime", "OnnxRuntimeBackend"),
    "eager": ("mrcfa.backends.eager", "EagerBackend"),
}
"""In the order of `auto`'s preference. A name may carry a variant: `onnxruntime:cuda`."""

_open: "WeakValueDictionary[tuple[Any, ...], Backend]" = WeakValueDictionary()
_opening = Lock()


def open_backend(bundle: Bundle, name: str = "auto", **options: Any) -> Backend:
    """The backend of that name; streams of one process that ask for the same share it."""
    key = (bundle.path.resolve(), bundle.manifest.to_json(), name, tuple(sorted(options.items())))
    with _opening:
        backend = _open.get(key)
        if backend is None:
            backend = _open[key] = _create(bundle, name, options)
        return backend


def _create(bundle: Bundle, name: str, options: dict[str, Any]) -> Backend:
    if name == "auto":
        return _best(bundle, options)
    kind, _, variant = name.partition(":")
    if kind not in BACKENDS:
        raise MrcfaError(f"unknown backend {name!r}; choose one of auto, {', '.join(BACKENDS)}")
    module, backend = BACKENDS[kind]
    if variant:
        options = {**options, "variant": variant}
    create = getattr(load(module), backend)
    unknown = sorted(options.keys() - signature(create).parameters.keys())
    if unknown:
        raise Unfit(f"the backend {kind} has no option {named(unknown)}")
    created: Backend = create(bundle, **options)
    return created


def _best(bundle: Bundle, options: dict[str, Any]) -> Backend:
    """The first backend that has the options, and whose packages and hardware are there."""
    reasons = []
    for name in BACKENDS:
        if name == "tensorrt" and not bundle.manifest.engines:
            continue
        try:
            return _create(bundle, name, options)
        except (MissingExtra, Unfit) as error:
            reasons.append(str(error))
    raise MrcfaError(f"no backend can run {bundle.path} here: {'; '.join(reasons)}")


class Unfit(MrcfaError):
    """A backend that is installed but cannot run this bundle on this machine."""
