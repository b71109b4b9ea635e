"""One frame of each input at a time, through a segmenter for each or a batch for all."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mrcfa.stream.streams import Streams

Image = NDArray[np.uint8]


class Segmenter(Protocol):
    """What `mrcfa.Stream` is to a pipeline."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def palette(self) -> NDArray[np.uint8]: ...
    def __call__(self, frame: Image) -> Image:
        """RGB (h, w, 3) to the class of every pixel, (h, w)."""
        ...

    def reset(self) -> None:
        """Forget the frames so far: the next one begins a video."""
        ...


class TwoInFlight(Segmenter, Protocol):
    """One that may be given a frame before the mask of the frame before it is taken."""

    @property
    def overlaps_frames(self) -> bool:
        """Whether that saves time."""
        ...

    def submit(self, frame: Image) -> None: ...
    def result(self) -> Image: ...


class Rounds(Protocol):
    """Inputs have numbers; a round has a frame of some of them."""

    in_flight: int
    """How many rounds may be begun before the first of them is finished."""

    def begin(self, images: Mapping[int, Image]) -> None: ...
    def finish(self) -> dict[int, Image]:
        """The masks of the round that was begun first."""
        ...

    def reset(self, number: int) -> None:
        """The input's next frame begins a video; while no round is under way."""
        ...


class InTurn:
    """A segmenter for each input; each frame is done when its round has begun."""

    in_flight = 1

    def __init__(self, segmenters: Sequence[Segmenter]) -> None:
        self._segmenters = segmenters
        self._masks: dict[int, Image] = {}

    def begin(self, images: Mapping[int, Image]) -> None:
        self._masks = {number: self._segmenters[number](image) for number, image in images.items()}

    def finish(self) -> dict[int, Image]:
        return self._masks

    def reset(self, number: int) -> None:
        self._segmenters[number].reset()


class Overlapping:
    """A segmenter for each input, with a frame in flight beside the one before it."""

    in_flight = 2

    def __init__(self, segmenters: Sequence[TwoInFlight]) -> None:
        self._segmenters = segmenters
        self._begun: deque[list[int]] = deque()

    def begin(self, images: Mapping[int, Image]) -> None:
        for number, image in images.items():
            self._segmenters[number].submit(image)
        self._begun.append(list(images))

    def finish(self) -> dict[int, Image]:
        return {number: self._segmenters[number].result() for number in self._begun.popleft()}

    def reset(self, number: int) -> None:
        self._segmenters[number].reset()


class Batched:
    """All inputs of a round in one pass: a slot of the bundle for each."""

    in_flight = 1

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._masks: dict[int, Image] = {}

    def begin(self, images: Mapping[int, Image]) -> None:
        masks = self._streams(images)
        self._masks = {number: mask for number, mask in masks.items() if mask is not None}

    def finish(self) -> dict[int, Image]:
        return self._masks

    def reset(self, number: int) -> None:
        if number in self._streams.cameras:  # else its first frame is yet to come
            self._streams.reset(number)


def rounds_of(streams: Sequence[TwoInFlight]) -> Rounds:
    """Two rounds in flight where the backend gains by it, else one after the other."""
    gains = all(stream.overlaps_frames for stream in streams)
    return Overlapping(streams) if gains else InTurn(streams)
