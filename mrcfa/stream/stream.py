"""`Stream`: frames of one video in, masks out; it keeps the memory of earlier frames."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Image
from mrcfa.bundle.manifest import Output
from mrcfa.errors import Unsupported, WrongState
from mrcfa.stream.segmenter import Frame, Segmenter

MOST_IN_FLIGHT = 2


class Stream(Segmenter):
    """One video. The streams of a process with the same bundle and backend share its graphs.

    One thread at a time may use a stream; a second thread gets an error. Different streams may run
    in different threads.

        with Stream("bundles/vspw-b1") as stream:
            for frame in frames:        # uint8 (h, w, 3), RGB
                mask = stream(frame)    # uint8 (h, w), class per pixel

    A frame may also be a Pillow image in mode RGB, or a tensor on the CPU of that type and shape.

    Bundles of `mrcfa export --input bgr` or `nv12` take frames in that format: NV12 as one array
    (h·3/2, w). `stream.input` is the bundle's format, and its `from_rgb` converts RGB. With
    `convert_rgb=True` the stream takes RGB of any size and converts it, beside NV12.

    Frames of the bundle's size (`size`, set by `mrcfa export --frame`) go straight into the graphs.
    Frames of any other size are resized on the host, and their masks are scaled back, which is
    slower and less exact at the boundaries.

    The bundle may be a path, an open `Bundle`, or the address of a server:
    `triton://HOST:PORT/MODEL`. An address as `backend`, together with a bundle, also checks that
    the server has the same bundle (docs/serving.md).

    With TensorRT a frame may be an array on the GPU. With `device_masks=True` the mask is one too,
    until the stream's next frame overwrites it. `Options` describes the other options.

    Two frames may be in flight: `submit` begins a frame, `result` returns the mask of the oldest.
    With TensorRT (`overlaps_frames`) the encoder then works on one frame while the decoder works on
    the frame before it. The masks are the same. Other backends compute a frame in `submit`.

        stream.submit(frames[0])
        for frame in frames[1:]:
            stream.submit(frame)
            mask = stream.result()      # of the frame before
        mask = stream.result()

    A bundle for several streams runs all of its rows for this one stream, at their cost; use
    `Streams` there.

    With ONNX Runtime's WebGPU all streams of a process take turns, because the provider crashes
    otherwise.

    If the machine has a GPU and `auto` takes another backend than TensorRT, a warning on stderr
    says why; with `strict=True` that is an error. A closed stream holds nothing on the GPU.
    Streams that were opened in a CUDA context other than the primary one must be closed before
    that context ends.
    """

    @property
    def overlaps_frames(self) -> bool:
        """True if two frames in flight take less time than one after the other."""
        return self._backend.overlaps_frames

    def __call__(self, frame: Frame) -> Image:
        """Segment the next frame of the video. No other frame may be in flight."""
        with self._alone():
            return self._mask_of(*self._stepped(frame))

    def logits(self, frame: Frame) -> NDArray[np.float32]:
        """Segment the next frame, like `stream(frame)`, but return the scores of all classes.

        They are float32 (classes, H/4, W/4), a quarter of the network's input, before the softmax
        over the first axis. The bundle must come from `mrcfa export --output logits`.
        """
        if self._model.output is not Output.LOGITS:
            raise Unsupported(
                "this bundle answers with masks, not logits; export it with --output logits"
            )
        with self._alone():
            outputs, _ = self._stepped(frame)
            return outputs["logits"].astype(np.float32)

    def submit(self, frame: Frame) -> None:
        """Begin the next frame of the video, while at most one other frame is in flight.

        A frame in host memory may change as soon as this returns, a frame on the GPU only after
        its mask was taken. With `device_masks` a mask lasts until the next submit.
        """
        with self._alone():
            if len(self._in_flight) == MOST_IN_FLIGHT:
                raise WrongState(
                    f"{self._flying} in flight; take a mask with result() before a third"
                )
            image, size = self._prepared(frame)
            begun, self._state = self._backend.submit(image, self._state)
            self._in_flight.append(_InFlight(begun, size))

    def result(self) -> Image:
        """Wait for the oldest frame in flight and return its mask."""
        with self._alone():
            backend = self._backend
            if not self._in_flight:
                raise WrongState("no frame is in flight; submit(frame) comes before result()")
            oldest = self._in_flight.popleft()
            return self._mask_of(backend.result(oldest.begun), oldest.size)

    def reset(self) -> None:
        """Forget all frames, including those in flight; the next frame starts a new video."""
        with self._alone():
            self._give_back()
            self._begin()

    def _stepped(self, frame: Frame) -> tuple[Arrays, tuple[int, ...]]:
        """The backend's outputs for the next frame, and the size of its mask."""
        if self._in_flight:
            raise WrongState(
                f"{self._flying} in flight; take every mask with result() before stream(frame)"
            )
        image, size = self._prepared(frame)
        outputs, self._state = self._backend.step(image, self._state)
        return outputs, size

    def _begin(self) -> None:
        self._in_flight: deque[_InFlight] = deque()
        super()._begin()

    def _give_back(self) -> None:
        self._in_flight.clear()
        super()._give_back()

    @property
    def _flying(self) -> str:
        return "one frame is" if len(self._in_flight) == 1 else f"{MOST_IN_FLIGHT} frames are"


@dataclass(frozen=True)
class _InFlight:
    begun: Any
    """The backend's handle, which `Backend.result` takes."""
    size: tuple[int, ...]
    """The size of the frame and of its mask."""
