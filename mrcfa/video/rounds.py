"""Rounds: one frame of each input, segmented by one stream per input or in one batch."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mrcfa.stream.streams import Streams

Image = NDArray[np.uint8]


class Segmenter(Protocol):
    """The part of `mrcfa.Stream` that the pipeline uses."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def palette(self) -> NDArray[np.uint8]: ...
    def __call__(self, frame: Image) -> Image:
        """The mask (h, w) of an RGB frame (h, w, 3)."""
        ...

    def reset(self) -> None:
        """Forget all frames: the next one starts a video."""
        ...


class TwoInFlight(Segmenter, Protocol):
    """A segmenter that accepts a frame before the mask of the previous one is taken."""

    @property
    def overlaps_frames(self) -> bool:
        """True if two frames in flight save time."""
        ...

    def submit(self, frame: Image) -> None: ...
    def result(self) -> Image: ...


class Rounds(Protocol):
    """Segmentation of numbered inputs in rounds; a round has frames of some of them."""

    in_flight: int
    """Largest number of rounds that are begun and not finished."""

    def begin(self, images: Mapping[int, Image]) -> None: ...
    def finish(self) -> dict[int, Image]:
        """The masks of the oldest unfinished round, by input."""
        ...

    def reset(self, number: int) -> None:
        """Start a new video with the input's next frame; all rounds must be finished."""
        ...


class Sequential:
    """Rounds with one segmenter per input; `begin` segments the frames one after the other."""

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
    """Rounds with one segmenter per input and two frames in flight."""

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
    """Rounds in one pass for all inputs, with one slot of the bundle per input."""

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
        if number in self._streams.cameras:  # else it has had no frame yet
            self._streams.reset(number)


def rounds_of(streams: Sequence[TwoInFlight]) -> Rounds:
    """Overlapping rounds if the backend is faster with them, else sequential ones."""
    faster = all(stream.overlaps_frames for stream in streams)
    return Overlapping(streams) if faster else Sequential(streams)
