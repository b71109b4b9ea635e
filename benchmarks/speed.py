"""Latency per frame from host to host: percentiles, and ratios with 95 % intervals.

The time of a step that serves several streams is divided evenly among their frames.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Backend, Image

REST_S = 0.02
"""Pause before each measurement. A runtime's threads spin for a while after their last work, and
would take cores from the next backend."""
LOAD_S = 1.0
"""Length of the load on a GPU before it is measured: a GPU that waits lowers its clocks."""
RESAMPLES = 2000

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Speed:
    """Times of the measured frames of one backend, in order."""

    seconds: Seconds
    """Latency of each frame, from frame to mask."""
    parts: Mapping[str, Seconds]
    """Latency by part: encoder, decoder and, on a GPU, copies; or server and network.

    On a GPU they are measured on other frames than `seconds`."""
    intervals: Seconds | None = None
    """Time from one mask to the next, where frames overlap; None where they do not."""

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent)) * 1e3

    @property
    def mean_ms(self) -> float:
        return float(self.seconds.mean()) * 1e3

    @property
    def pace(self) -> Seconds:
        """Time per frame that sets the throughput: intervals if frames overlap, else latency."""
        return self.seconds if self.intervals is None else self.intervals

    @property
    def fps(self) -> float:
        return float(1 / self.pace.mean())

    def part_ms(self, part: str) -> float:
        return float(np.median(self.parts[part])) * 1e3

    def to_json(self) -> dict[str, float]:
        found = {f"p{percent}_ms": self.percentile_ms(percent) for percent in (50, 90, 99)}
        found |= {"mean_ms": self.mean_ms, "fps": self.fps}
        if self.intervals is not None:
            found["interval_p50_ms"] = float(np.median(self.intervals)) * 1e3
        return found | {f"{part}_ms": self.part_ms(part) for part in self.parts}


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio(above: Seconds, below: Seconds) -> Ratio:
    """median(above) / median(below), with an interval by bootstrap over rounds.

    On CPUs both are measured in the same rounds, so each resample draws the same rounds for both: a
    slow moment of the machine does not widen the interval. A GPU is measured in its own block.
    """
    rounds = np.random.default_rng(0).integers(len(above), size=(RESAMPLES, len(above)))
    drawn = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Ratio(float(np.median(above) / np.median(below)), float(low), float(high))


class Stopwatch:
    """Times one backend's stream frame by frame, so that several backends can alternate."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._state: Any = backend.start()
        self._seconds: list[float] = []
        self._parts: list[dict[str, float]] = []

    def step(self, image: Image, rest_s: float = REST_S) -> Arrays:
        sleep(rest_s)
        began = perf_counter()
        outputs, self._state, parts = self._backend.timed_step(image, self._state)
        seconds, streams = perf_counter() - began, self._backend.streams
        parts |= self._backend.late_timings(seconds)
        self._seconds.append(seconds / streams)
        self._parts.append({name: part / streams for name, part in parts.items()})
        return outputs

    def back_to_back(self, images: Sequence[Image], frames: int, load_s: float = LOAD_S) -> Speed:
        """Speed of `frames` frames without pauses, after `load_s` of load, as GPUs are measured.

        Their parts are those of further frames, because events between them take time.
        """
        pictures, loaded = cycle(images), perf_counter() + load_s
        while perf_counter() < loaded:
            self._undivided(next(pictures))
        whole = np.array([self._undivided(next(pictures)) for _ in range(frames)])
        before = len(self._parts)
        for _ in range(frames):
            self.step(next(pictures), rest_s=0)
        return replace(self.speed(before), seconds=whole)

    def _undivided(self, image: Image) -> float:
        """Seconds of a frame, as users get them: nothing is measured inside the step."""
        began = perf_counter()
        _, self._state = self._backend.step(image, self._state)
        return (perf_counter() - began) / self._backend.streams

    def speed(self, warmup: int) -> Speed:
        """Times of all frames after the first `warmup`."""
        timed = self._parts[warmup:]
        return Speed(
            np.array(self._seconds[warmup:]),
            {name: np.array([parts[name] for parts in timed]) for name in timed[0]},
        )


def two_in_flight(
    backend: Backend, images: Sequence[Image], frames: int, load_s: float = LOAD_S
) -> Speed:
    """Speed with two frames in flight: each is submitted before the previous mask is fetched."""
    state, pictures = backend.start(), cycle(images)
    begun: deque[tuple[float, Any]] = deque()
    latencies: list[float] = []
    answered: list[float] = []

    def submit() -> None:
        nonlocal state
        began = perf_counter()
        frame, state = backend.submit(next(pictures), state)
        begun.append((began, frame))

    def finish() -> None:
        began, frame = begun.popleft()
        backend.result(frame)
        answered.append(perf_counter())
        latencies.append(answered[-1] - began)

    loaded = perf_counter() + load_s
    submit()
    while not answered or perf_counter() < loaded:
        submit()
        finish()
    del answered[:-1]
    latencies.clear()
    for _ in range(frames):
        submit()
        finish()
    speed = Speed(np.array(latencies), {}, np.diff(answered))
    finish()
    backend.finish(state)
    return speed
