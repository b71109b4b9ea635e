"""`Segmenter`: an open bundle in a backend, the common base of `Stream` and `Streams`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Backend, Image, OnDevice, open_backend
from mrcfa.backends.records import ColdStart, Options, is_address
from mrcfa.bundle import Bundle
from mrcfa.errors import InvalidValue, Mismatch, Unsupported, WrongState, member
from mrcfa.machine.extras import load
from mrcfa.model.config import Config
from mrcfa.model.input_format import RGB, InputFormat, Layout, planes
from mrcfa.stream.layouts import as_frame
from mrcfa.stream.rgb import Picture, Tensor, as_rgb

Frame = Image | Picture | Tensor | OnDevice
_Kind = TypeVar("_Kind", bound="Segmenter")


class Segmenter:
    """A bundle in a backend, with a state. It prepares frames for the graphs and finishes masks."""

    def __init__(
        self,
        bundle: str | Path | Bundle,
        backend: str = "auto",
        *,
        precision: str | None = None,
        threads: int = 0,
        device: int | None = None,
        cuda_graphs: bool = True,
        device_masks: bool = False,
        plugin_library: str | Path | None = None,
        cold_start: ColdStart | str = ColdStart.STREAM,
        strict: bool = False,
        convert_rgb: bool = False,
    ) -> None:
        options = Options(
            precision=precision,
            threads=threads,
            device=device,
            cuda_graphs=cuda_graphs,
            device_masks=device_masks,
            plugin_library=None if plugin_library is None else Path(plugin_library),
            cold_start=member(ColdStart, cold_start, "cold start"),
            strict=strict,
        )
        self._opened: Backend | None = open_backend(*_resolved(bundle, backend), options)
        self._model = self._opened.model
        self.size, self.input = self._model.frame, self._model.input
        self._convert_rgb = convert_rgb
        self.classes = self._model.classes
        self.palette: NDArray[np.uint8] = np.array(self._model.palette, np.uint8)
        self._device_masks = device_masks
        self._state: Any = None
        self._busy = Lock()
        self._begin()

    @property
    def config(self) -> Config:
        """The configuration of the bundle's model."""
        return self._model.config

    @property
    def backend(self) -> str:
        """The runtime, the device and the precision: `onnxruntime (CPU, fp32)`."""
        return self._backend.name

    def close(self) -> None:
        """Release the state and the backend. The last stream of a backend frees its GPU memory."""
        with self._alone():
            if self._opened is not None:
                self._give_back()
                self._opened = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Raise an error if another thread is at work in this stream at the same time."""
        if not self._busy.acquire(blocking=False):
            raise WrongState(
                "this stream is at work in another thread; open one for each thread, or let the "
                "threads take turns"
            )
        try:
            yield
        finally:
            self._busy.release()

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            raise WrongState("this stream is closed; open a new one")
        return self._opened

    def _begin(self) -> None:
        self._state = self._backend.start()

    def _give_back(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._backend.finish(state)

    def __enter__(self: _Kind) -> _Kind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepared(self, frame: Frame) -> tuple[Any, tuple[int, ...]]:
        """The frame in the form that the backend takes, and the size of its mask."""
        if hasattr(frame, "__cuda_array_interface__"):
            if not self._backend.takes_device_frames:
                raise Unsupported(
                    f"{self.backend} takes no frames on the GPU; copy them to the host"
                )
            return frame, self.size
        rgb = self._convert_rgb and len(getattr(frame, "shape", ())) != 2
        form = RGB if rgb else self.input
        image = as_rgb(frame) if rgb else as_frame(frame, form, self.size)
        size = form.size(image.shape)
        if size != self.size:
            if self._device_masks:
                raise Mismatch(
                    f"masks on the GPU have the bundle's frame size {self.size} and this frame is "
                    f"{size}; export with --frame {size[0]}x{size[1]}"
                )
            image = resized(image, self.size, form)
        return np.ascontiguousarray(self.input.from_rgb(image) if rgb else image), size

    def _mask_of(self, outputs: Arrays, size: tuple[int, ...]) -> Image:
        """The mask in this size. Logits become a mask here; most bundles do that in the graph."""
        if "mask" in outputs:
            mask = outputs["mask"]
        else:
            from mrcfa.stream.resize import mask_of_logits

            mask = mask_of_logits(outputs["logits"], self._model.config.size, self.size)
        return mask if size == self.size else scaled(mask, size)


def _resolved(place: str | Path | Bundle, backend: str) -> tuple[Bundle | None, str]:
    """The open bundle and the backend's name. A server's address is a backend without a bundle."""
    if isinstance(place, Bundle):
        return place, backend
    if not is_address(place):
        return Bundle.open(place), backend
    if backend != "auto":
        raise InvalidValue(f"{place} runs what its server chose; leave the backend {backend} out")
    return None, str(place)


def resized(frame: Image, size: tuple[int, int], form: InputFormat) -> Image:
    """A frame of this format in another size; planes of NV12 are resized one by one."""
    if form.layout is not Layout.NV12:
        return scaled(frame, size, "BILINEAR")
    made = np.empty(form.shape(size), np.uint8)
    (luma, chroma), (new_luma, new_chroma) = planes(frame), planes(made)
    new_luma[...] = scaled(luma, size, "BILINEAR")
    for part in (0, 1):
        half = new_chroma[..., part]
        half[...] = scaled(chroma[..., part], half.shape, "BILINEAR")
    return made


def scaled(image: Image, size: tuple[int, ...], method: str = "NEAREST") -> Image:
    pillow = load("PIL.Image")
    resample = getattr(pillow.Resampling, method)
    return np.asarray(pillow.fromarray(image).resize((size[1], size[0]), resample))
