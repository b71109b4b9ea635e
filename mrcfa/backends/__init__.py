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
from mrcfa.console.notices import tell
from mrcfa.errors import InvalidValue, Unsupported, named
from mrcfa.machine.extras import extras_named, load

__all__ = [
    "BACKENDS",
    "Arrays",
    "Backend",
    "Image",
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


class Backend(ABC):
    """One loaded bundle. It holds no stream's state, so any number of streams may share it.

    A state is that of all B streams of the bundle, its rows. Where one stream is stepped alone, as
    `Stream` does, every row of a bundle for several sees the same frames.
    """

    name: str
    """What runs and where, such as `onnxruntime (CPU, fp32)`."""
    takes_device_frames = False
    """Whether an image may also be `OnDevice`."""
    on_gpu = False
    streams = 1
    """Rows that a step computes, whether they are needed or not."""
    overlaps_frames = False
    """Whether `submit` returns early, so that two frames in flight take less time than in turn."""

    @abstractmethod
    def start(self) -> Any:
        """The state before the first frame."""

    @abstractmethod
    def timed_step(self, image: Image, state: Any) -> tuple[Arrays, Any, dict[str, float]]:
        """`step`, and the seconds that its parts took, where they can be told apart."""

    def step(self, image: Image, state: Any) -> tuple[Arrays, Any]:
        """uint8 (h, w, 3) -> `mask` (h, w) or `logits` (classes, H/4, W/4), and the next state."""
        outputs, state, _ = self.timed_step(image, state)
        return outputs, state

    def told_apart(self, seconds: float) -> dict[str, float]:
        """What more can be said of the last step, which took so long, after its clock stopped."""
        return {}

    def step_all(
        self, images: Sequence[Image | None], state: Any
    ) -> tuple[list[Arrays | None], Any]:
        """`step` for an image of each row, or None, which leaves that row as it was."""
        raise Unsupported(f"{self.name} takes one stream at a time; open a Stream for each camera")

    def restart(self, row: int, state: Any) -> Any:
        """The state, but for one row, which is before its first frame."""
        raise Unsupported(f"{self.name} has no rows to restart; open a Stream for each camera")

    def submit(self, image: Image, state: Any) -> tuple[Any, Any]:
        """Begin a frame: what `result` takes, and the next state. At most two may be begun."""
        return self.step(image, state)

    def result(self, begun: Any) -> Arrays:
        """What `step` would have answered; the frames of a state in the order they were begun."""
        outputs: Arrays = begun
        return outputs

    def usable(self) -> bool:
        """Whether a further stream of this thread may share it."""
        return True

    def finish(self, state: Any) -> None:  # noqa: B027  # most backends keep nothing back
        """The state is not needed any more: what it holds may serve another stream."""


class TwoGraphs(Backend):
    """An encoder and a decoder that return when they are done."""

    @abstractmethod
    def encode(self, image: Image) -> Any:
        """uint8 (h, w, 3) of the bundle's frame size -> what `decode` wants of it."""

    @abstractmethod
    def decode(self, features: Any, state: Any) -> tuple[Arrays, Any]:
        """The frame's answer, and the state for the next frame."""

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
    """The backend of that name; streams of one process that ask for the same share it.

    A server needs no bundle, the others do.
    """
    options = options or Options()
    what = bundle and (bundle.path.resolve(), bundle.manifest.to_json())
    key = (what, name, options)
    with _opening:
        backend = _open.get(key)
        if backend is None or not backend.usable():
            backend = _open[key] = _create(bundle, name, options)
        return backend


def _create(bundle: Bundle | None, name: str, options: Options) -> Backend:
    if name == "auto" and bundle is not None:
        return _best(bundle, options)
    kind, which = parts_of(name)
    if kind not in BACKENDS or (BACKENDS[kind].addressed and not which):
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
    """The first backend that can do what is asked, and whose packages and hardware are there.

    If a GPU is there and stays idle, the reasons are reported, or raised with `strict`.
    """
    from mrcfa.machine import hardware

    needed = options.given & CHANGES_ANSWERS
    backend, notice = first_opened(
        (
            partial(_opened, record, bundle, "", options, needed)
            for record in BACKENDS.values()
            if record.can_run(bundle)
        ),
        bundle.path,
        lambda: len(hardware.gpus()),
        options.strict,
    )
    if notice:
        tell(notice)
    return backend
