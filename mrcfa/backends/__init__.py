"""The `Backend` interface (start, step, finish), and `open_backend`, which loads one by name.

Parity and speed are written once, against `Backend`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends.fitting import first_opened
from mrcfa.backends.records import (
    BACKENDS,
    CHANGES_ANSWERS,
    CHOICES,
    BackendRecord,
    Options,
    parts_of,
)
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.manifest import Output
from mrcfa.console.notices import warn
from mrcfa.data.labels import Colour
from mrcfa.errors import InvalidValue, Unsupported, named
from mrcfa.machine.extras import extras_named, load
from mrcfa.model.config import Config
from mrcfa.model.input_format import InputFormat

__all__ = [
    "BACKENDS",
    "Arrays",
    "Backend",
    "Image",
    "Model",
    "OnDevice",
    "Options",
    "TwoGraphs",
    "Unfit",
    "open_backend",
]

Image = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]


class OnDevice(Protocol):
    """An array on the GPU: a torch tensor, a CuPy array, a pycuda GPUArray."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class Model(Protocol):
    """The facts about a model that a stream needs: those of a manifest, or of a server."""

    @property
    def config(self) -> Config: ...
    @property
    def streams(self) -> int: ...
    @property
    def frame(self) -> tuple[int, int]: ...
    @property
    def input(self) -> InputFormat: ...
    @property
    def output(self) -> Output: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def palette(self) -> tuple[Colour, ...]: ...
    def to_json(self) -> str:
        """All facts; the text changes with anything that changes the answers."""
        ...


class Backend(ABC):
    """A loaded bundle. It holds no state of a stream, so any number of streams may share it.

    A state has a row for each of the bundle's B streams. `step` gives the same frame to all rows;
    `step_all` gives each row a frame of its own.
    """

    model: Model
    name: str
    """The runtime, the device and the precision, such as `onnxruntime (CPU, fp32)`."""
    takes_device_frames = False
    """True if a frame may be `OnDevice`."""
    on_gpu = False
    streams = 1
    """The number of rows that every step computes, needed or not."""
    overlaps_frames = False
    """True if `submit` returns before the frame is done, so that two frames overlap."""

    @abstractmethod
    def start(self) -> Any:
        """The state before the first frame."""

    @abstractmethod
    def timed_step(self, image: Image, state: Any) -> tuple[Arrays, Any, dict[str, float]]:
        """`step`, and the seconds of its parts by name, if they can be measured."""

    def step(self, image: Image, state: Any) -> tuple[Arrays, Any]:
        """A frame -> `mask` (h, w) or `logits` (classes, H/4, W/4), and the next state.

        The frame has the size and the format of the model's frames.
        """
        outputs, state, _ = self.timed_step(image, state)
        return outputs, state

    def late_timings(self, seconds: float) -> dict[str, float]:
        """Parts of the last step that are measured elsewhere; the whole step took `seconds`."""
        return {}

    def step_all(
        self, images: Sequence[Image | None], state: Any
    ) -> tuple[list[Arrays | None], Any]:
        """`step` with an image for each row; None leaves that row as it was."""
        raise Unsupported(f"{self.name} takes one stream at a time; open a Stream for each camera")

    def restart(self, row: int, state: Any) -> Any:
        """The state with one row set back to before its first frame."""
        raise Unsupported(f"{self.name} has no rows to restart; open a Stream for each camera")

    def submit(self, image: Image, state: Any) -> tuple[Any, Any]:
        """Begin a frame; returns the handle for `result`, and the next state.

        At most two frames of a state may be in flight.
        """
        return self.step(image, state)

    def result(self, begun: Any) -> Arrays:
        """The outputs of `step` for a frame that `submit` began. Frames are taken in order."""
        outputs: Arrays = begun
        return outputs

    def usable(self) -> bool:
        """True if another stream of this thread may share this backend."""
        return True

    def finish(self, state: Any) -> None:  # noqa: B027  # most states are memory alone
        """Release a state that holds more than memory: a lane on a GPU, a place on a server."""


class TwoGraphs(Backend):
    """A backend with an encoder and a decoder, each of which returns when it is done."""

    @abstractmethod
    def encode(self, image: Image) -> Any:
        """A frame of the bundle's size and format -> features for `decode`."""

    @abstractmethod
    def decode(self, features: Any, state: Any) -> tuple[Arrays, Any]:
        """The frame's outputs, and the state for the next frame."""

    def timed_step(self, image: Image, state: Any) -> tuple[Arrays, Any, dict[str, float]]:
        began = perf_counter()
        features = self.encode(image)
        encoded = perf_counter()
        outputs, state = self.decode(features, state)
        return outputs, state, {"encoder": encoded - began, "decoder": perf_counter() - encoded}


_open: "WeakValueDictionary[tuple[Any, ...], Backend]" = WeakValueDictionary()
_opening = Lock()


def open_backend(
    bundle: Bundle | None, name: str = "auto", options: Options | None = None
) -> Backend:
    """The backend of this name. Streams of a process that ask for the same one share it.

    A server's address needs no bundle; every other backend needs one.
    """
    options = options or Options()
    identity = bundle and (bundle.path.resolve(), bundle.manifest.to_json())
    key = (identity, name, options)
    with _opening:
        backend = _open.get(key)
        if backend is None or not backend.usable():
            backend = _open[key] = _create(bundle, name, options)
        return backend


def _create(bundle: Bundle | None, name: str, options: Options) -> Backend:
    if name == "auto" and bundle is not None:
        return _best(bundle, options)
    kind, which = parts_of(name)
    if kind not in BACKENDS or (BACKENDS[kind].schemes and not which):
        raise InvalidValue(f"unknown backend {name!r}; choose one of {named(CHOICES)}")
    return _opened(BACKENDS[kind], bundle, which, options, options.given)


def _opened(
    record: BackendRecord, bundle: Bundle | None, which: str, options: Options, needed: set[str]
) -> Backend:
    surplus = sorted(needed - record.options)
    if surplus:
        raise Unfit(f"the backend {record.name} has no option {named(surplus)}")
    module, _, name = record.factory.partition(":")
    with extras_named(dict.fromkeys(record.packages, record.extra)):
        factory = getattr(load(module), name)
    created: Backend = factory(bundle, which, options)
    return created


def _best(bundle: Bundle, options: Options) -> Backend:
    """The first backend that can do what is asked, with the packages and the hardware here.

    If a GPU is there and stays idle, the reasons are reported, or raised with `strict`.
    """
    from mrcfa.machine import hardware

    needed = options.given & CHANGES_ANSWERS
    backend, notice = first_opened(
        (
            partial(_opened, record, bundle, "", options, needed)
            for record in BACKENDS.values()
            if record.auto(bundle)
        ),
        bundle.path,
        lambda: len(hardware.gpus()),
        options.strict,
    )
    if notice:
        warn(notice)
    return backend
