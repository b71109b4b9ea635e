"""`Stream`: frames in, masks out, with the memory of earlier frames kept in between."""

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
    """One video. Streams of the same bundle and backend in a process share the loaded graphs.

    A stream belongs to one thread at a time; different streams may run in different threads. A
    thread that comes in while another one is at work gets an error.

        with Stream("bundles/vspw-b1") as stream:
            for frame in frames:        # uint8 (h, w, 3), RGB
                mask = stream(frame)    # uint8 (h, w), class per pixel

    A frame may also be a Pillow image in mode RGB, or a tensor on the CPU of that type and shape.

    Frames of the bundle's own size (`size`, fixed by `mrcfa export --frame`) go through the graphs
    as they are. Frames of any other size are resized on the host and their masks scaled back to the
    frame, which is slower and less exact at the boundaries.

    `triton://HOST:PORT/MODEL` in place of a bundle is the same on a server; as `backend` beside a
    bundle it sees to it that both are the same version (docs/serving.md).

    With TensorRT a frame may also be an array on the GPU, and with `device_masks=True` the mask is
    one, until the stream's next frame overwrites it. `Options` describes the other options.

    Two frames may be in flight: what `submit` begins, `result` gives back, in order. With TensorRT
    (`overlaps_frames`) the encoder then works on a frame beside the decoder on the one before it,
    and the masks are the same; other backends compute a frame when it is submitted.

        stream.submit(frames[0])
        for frame in frames[1:]:
            stream.submit(frame)
            mask = stream.result()      # of the frame before
        mask = stream.result()

    On a bundle for several streams this one takes the place of all, at their cost (see `Streams`).

    Where a GPU is there and `auto` takes something else than TensorRT, it says why on stderr; with
    `strict=True` that is an error. A closed stream holds nothing on the GPU, and streams have to be
    closed before the CUDA context that they were opened in goes, if that is not the primary one.
    """

    @property
    def overlaps_frames(self) -> bool:
        """Whether two frames in flight take less time than one after the other."""
        return self._backend.overlaps_frames

    def __call__(self, frame: Frame) -> Image:
        """Segment the next frame of the video. It comes after all others: none may be in flight."""
        with self._alone():
            return self._mask_of(*self._stepped(frame))

    def logits(self, frame: Frame) -> NDArray[np.float32]:
        """Segment the next frame, like `stream(frame)`, but return the scores of all classes.

        They are those of a bundle of `mrcfa export --output logits`: float32 (classes, H/4, W/4)
        at a quarter of the network's input, before the softmax over the first axis.
        """
        if self._model.output is not Output.LOGITS:
            raise Unsupported(
                "this bundle answers with masks, not logits; export it with --output logits"
            )
        with self._alone():
            outputs, _ = self._stepped(frame)
            return outputs["logits"].astype(np.float32)

    def submit(self, frame: Frame) -> None:
        """Begin the next frame of the video, while at most one other is in flight.

        A frame in host memory may change when this returns. One on the GPU must not, until its
        mask is there. With `device_masks` a mask lasts until the next submit.
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
        """The mask of the frame that was submitted first, once it is done."""
        with self._alone():
            backend = self._backend
            if not self._in_flight:
                raise WrongState("no frame is in flight; submit(frame) comes before result()")
            oldest = self._in_flight.popleft()
            return self._mask_of(backend.result(oldest.begun), oldest.size)

    def reset(self) -> None:
        """Forget all frames, also those in flight: the next one starts a new video."""
        with self._alone():
            self._give_back()
            self._begin()

    def _stepped(self, frame: Frame) -> tuple[Arrays, tuple[int, ...]]:
        """What the backend answers to the next frame, and the size that its mask is to have."""
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
    """What the backend made of it."""
    size: tuple[int, ...]
    """Of the frame, and so of its mask."""
