"""`Stream`: frames in, masks out, with the memory of earlier frames kept in between."""

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Backend, Image, OnDevice, open_backend
from mrcfa.backends.records import ColdStart, Options
from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError, member
from mrcfa.extras import load
from mrcfa.model.config import Config


class Stream:
    """One video. Streams of the same bundle and backend in a process share the loaded graphs.

    A stream belongs to one thread at a time; different streams may run in different threads.

        with Stream("bundles/vspw-b1") as stream:
            for frame in frames:        # uint8 (h, w, 3), RGB
                mask = stream(frame)    # uint8 (h, w), class per pixel

    Frames of the bundle's own size (`size`, fixed by `mrcfa export --frame`) go through the graphs
    as they are. Frames of any other size are resized on the host and their masks scaled back to the
    frame, which is slower and less exact at the boundaries.

    With TensorRT a frame may also be an array on the GPU, and with `device_masks=True` the mask is
    one, until the stream's next frame overwrites it. `Options` describes the other options.

    Where a GPU is there and `auto` takes something else than TensorRT, it says why on stderr; with
    `strict=True` that is an error. A closed stream holds nothing on the GPU, and streams have to be
    closed before the CUDA context that they were opened in goes, if that is not the primary one.
    """

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
        self._bundle = Bundle.open(bundle)
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
        self._opened: Backend | None = open_backend(self._bundle, backend, options)
        self.size = self._bundle.manifest.frame
        self.classes = self._bundle.manifest.classes
        self.palette: NDArray[np.uint8] = np.array(self._bundle.manifest.palette, np.uint8)
        self._device_masks = device_masks
        self._state: Any = self._backend.start()

    @property
    def config(self) -> Config:
        """Of the model in the bundle."""
        return self._bundle.config

    @property
    def backend(self) -> str:
        """What runs, as it reported itself: `onnxruntime (CPU, fp32)`."""
        return self._backend.name

    def __call__(self, frame: Image | OnDevice) -> Image:
        """Segment the next frame of the video."""
        if hasattr(frame, "__cuda_array_interface__"):
            return self._segment_on_device(frame)
        image = _checked(frame)
        if image.shape[:2] == self.size:
            return self._segment(np.ascontiguousarray(image))
        if self._device_masks:
            raise MrcfaError(
                f"masks on the GPU have the bundle's frame size {self.size} and this frame is "
                f"{image.shape[:2]}; export with --frame {image.shape[0]}x{image.shape[1]}"
            )
        return _scaled(self._segment(_scaled(image, self.size, "BILINEAR")), image.shape[:2])

    def reset(self) -> None:
        """Forget all frames: the next one starts a new video."""
        self._give_back()
        self._state = self._backend.start()

    def close(self) -> None:
        """Let go of the state and of this stream's share of the backend, which frees a GPU."""
        if self._opened is not None:
            self._give_back()
            self._opened = None

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            raise MrcfaError("this stream is closed; open a new one")
        return self._opened

    def _give_back(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._backend.finish(state)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _segment_on_device(self, frame: Any) -> Image:
        if not self._backend.takes_device_frames:
            raise MrcfaError(f"{self.backend} takes no frames on the GPU; copy them to the host")
        return self._segment(frame)

    def _segment(self, frame: Image) -> Image:
        outputs, self._state = self._backend.step(frame, self._state)
        return outputs["mask"] if "mask" in outputs else self._mask_of(outputs)

    def _mask_of(self, outputs: Arrays) -> Image:
        """A bundle that answers with logits: the last two steps happen here instead."""
        from mrcfa.resize import mask_of_logits

        return mask_of_logits(outputs["logits"], self._bundle.config.size, self.size)


def _checked(frame: Any) -> Image:
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8:
        kind = frame.dtype if isinstance(frame, np.ndarray) else type(frame).__name__
        raise MrcfaError(f"a frame is a uint8 array, not {kind}; convert it with astype(np.uint8)")
    if frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise MrcfaError(f"a frame has shape (height, width, 3), not {frame.shape}")
    return frame


def _scaled(image: Image, size: tuple[int, ...], method: str = "NEAREST") -> Image:
    pillow = load("PIL.Image")
    resample = getattr(pillow.Resampling, method)
    return np.asarray(pillow.fromarray(image).resize((size[1], size[0]), resample))
