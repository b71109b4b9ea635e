"""`Segmenter`: an open bundle, as `Stream` and `Streams` share it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Backend, Image, OnDevice, open_backend
from mrcfa.backends.address import is_address
from mrcfa.backends.records import ColdStart, Options
from mrcfa.backends.served import Served
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Manifest
from mrcfa.errors import InvalidValue, Mismatch, Unsupported, WrongState, member
from mrcfa.machine.extras import load
from mrcfa.model.config import Config
from mrcfa.stream.rgb import Picture, Tensor, as_rgb

Frame = Image | Picture | Tensor | OnDevice
_Kind = TypeVar("_Kind", bound="Segmenter")


class Segmenter:
    """A bundle in a backend, with a state; what becomes of frames before and of masks after."""

    def __init__(
        self,
        bundle: str | Path,
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
        self._opened: Backend | None
        self._model: Manifest | Served
        if is_address(bundle):
            self._opened, self._model = _remote(str(bundle), backend, options)
        else:
            opened = Bundle.open(bundle)
            self._opened, self._model = open_backend(opened, backend, options), opened.manifest
        self.size = self._model.frame
        self.classes = self._model.classes
        self.palette: NDArray[np.uint8] = np.array(self._model.palette, np.uint8)
        self._device_masks = device_masks
        self._state: Any = None
        self._busy = Lock()
        self._begin()

    @property
    def config(self) -> Config:
        """Of the model in the bundle."""
        return self._model.config

    @property
    def backend(self) -> str:
        """What runs, as it reported itself: `onnxruntime (CPU, fp32)`."""
        return self._backend.name

    def close(self) -> None:
        """Let go of the state and of this stream's share of the backend, which frees a GPU."""
        with self._alone():
            if self._opened is not None:
                self._give_back()
                self._opened = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a thread that comes in while another one is at work; to take turns is fine."""
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
        """The frame as the backend takes it, and the size that its mask is to have."""
        if hasattr(frame, "__cuda_array_interface__"):
            if not self._backend.takes_device_frames:
                raise Unsupported(
                    f"{self.backend} takes no frames on the GPU; copy them to the host"
                )
            return frame, self.size
        image = as_rgb(frame)
        size = image.shape[:2]
        if size == self.size:
            return np.ascontiguousarray(image), size
        if self._device_masks:
            raise Mismatch(
                f"masks on the GPU have the bundle's frame size {self.size} and this frame is "
                f"{size}; export with --frame {size[0]}x{size[1]}"
            )
        return scaled(image, self.size, "BILINEAR"), size

    def _mask_of(self, outputs: Arrays, size: tuple[int, ...]) -> Image:
        """Where a bundle answers with logits, the last two steps happen here instead."""
        if "mask" in outputs:
            mask = outputs["mask"]
        else:
            from mrcfa.stream.resize import mask_of_logits

            mask = mask_of_logits(outputs["logits"], self._model.config.size, self.size)
        return mask if size == self.size else scaled(mask, size)


def _remote(address: str, backend: str, options: Options) -> tuple[Backend, Served]:
    """A served model: what is known of it comes from the server."""
    if backend != "auto":
        raise InvalidValue(f"{address} runs what its server chose; leave the backend {backend} out")
    opened = open_backend(None, address, options)
    from mrcfa.backends.triton import TritonBackend

    assert isinstance(opened, TritonBackend)
    return opened, opened.served


def scaled(image: Image, size: tuple[int, ...], method: str = "NEAREST") -> Image:
    pillow = load("PIL.Image")
    resample = getattr(pillow.Resampling, method)
    return np.asarray(pillow.fromarray(image).resize((size[1], size[0]), resample))
