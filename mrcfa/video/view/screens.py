"""The state of one input for the viewers: newest frame and mask, statistics, the last minute.

The pipeline replaces the newest frame and never waits. A frame is encoded only when a viewer
requests it, once for all viewers and in a separate thread.
"""

import asyncio
import json
import threading
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from mrcfa.machine.extras import load
from mrcfa.model.input_format import RGB, InputFormat
from mrcfa.video.feed import Arrival, Clock
from mrcfa.video.pixels import as_rgb
from mrcfa.video.segment import Tally
from mrcfa.video.sources import Frame

MINUTE = 60
"""Number of statistics kept, one per second."""
LONGEST_SIDE = 1280
"""Largest side of a sent picture in pixels; larger ones are reduced to a half, a third, …"""
_QUALITY = 80


@dataclass(frozen=True)
class Shot:
    """One frame with its mask."""

    number: int
    """Number of the frame in this input, starting at 1."""
    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    form: InputFormat = RGB
    """The format of the image."""


@dataclass(frozen=True)
class Packet:
    """An encoded shot, with facts that describe its parts."""

    facts: dict[str, int]
    body: bytes

    def message(self, **more: int) -> bytes:
        """The message for a viewer: a line of JSON, the frame as JPEG, the deflated mask."""
        return json.dumps(self.facts | more).encode() + b"\n" + self.body


class Screen:
    """The newest shot and the statistics of one input."""

    def __init__(
        self, name: str, encoder: Executor, changed: Callable[[], None], clock: Clock
    ) -> None:
        self.name = name
        self.shot: Shot | None = None
        self.minute: deque[dict[str, float | None]] = deque(maxlen=MINUTE)
        self._encoder, self._changed, self._clock = encoder, changed, clock
        self._lock = threading.Lock()
        self._state, self._message = "waiting", ""
        self._tally = Tally()
        self._frames, self._latency = 0, 0.0  # number and summed latency since the last sample
        self._sampled = (clock(), 0)
        self._seen = clock()
        self._encoding: tuple[int, asyncio.Future[Packet]] | None = None

    def show(self, arrival: Arrival[Frame], mask: NDArray[np.uint8], tally: Tally) -> None:
        """Replace the newest shot; the arrays must not change afterwards."""
        with self._lock:
            number = self.shot.number + 1 if self.shot else 1
            self.shot = Shot(number, arrival.item.image, mask, arrival.item.form)
            self._tally, self._seen = tally, self._clock()
            self._frames += 1
            self._latency += self._seen - arrival.time
        self._changed()

    def set_state(self, state: str, message: str = "") -> str:
        """Set the state, `live`, `lost` or `ended`, with its message; return the old state."""
        before, self._state, self._message = self._state, state, message
        return before

    def sample(self) -> None:
        """Add the statistics since the last sample to the minute."""
        with self._lock:
            now, dropped = self._clock(), self._tally.dropped
            frames, latency = self._frames, self._latency
            self._frames, self._latency = 0, 0.0
        (before, dropped_before), self._sampled = self._sampled, (now, dropped)
        passed = max(now - before, 1e-6)
        point = {
            "rate": frames / passed,
            "latency": latency / frames * 1e3 if frames else None,
            "dropped": (dropped - dropped_before) / passed,
        }
        self.minute.append({key: value and round(value, 2) for key, value in point.items()})

    def facts(self) -> dict[str, object]:
        """The current state and statistics of the input."""
        return {
            "state": self._state,
            "message": self._message,
            "frames": self.shot.number if self.shot else 0,
            "dropped": self._tally.dropped,
            "silent": round(self._clock() - self._seen, 1),
            "last": self.minute[-1] if self.minute else None,
        }

    async def packet(self) -> Packet:
        """The newest shot, encoded once for all viewers; there must be one."""
        shot = self.shot
        assert shot is not None
        if self._encoding is None or self._encoding[0] != shot.number:
            loop = asyncio.get_running_loop()
            self._encoding = shot.number, loop.run_in_executor(self._encoder, encoded, shot)
        return await asyncio.shield(self._encoding[1])  # a viewer that leaves cancels only itself


def encoded(shot: Shot) -> Packet:
    """Encode the frame as JPEG and deflate the mask."""
    pillow = load("PIL.Image")
    step = -(-max(shot.mask.shape) // LONGEST_SIDE)
    mask = np.ascontiguousarray(shot.mask[::step, ::step])
    image = pillow.fromarray(as_rgb(shot.image, shot.form))
    jpeg = BytesIO()
    (image.reduce(step) if step > 1 else image).save(jpeg, "JPEG", quality=_QUALITY)
    height, width = mask.shape
    facts = {"number": shot.number, "width": width, "height": height, "jpeg": jpeg.tell()}
    return Packet(facts, jpeg.getvalue() + zlib.compress(mask.data, 1))
