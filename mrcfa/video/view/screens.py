"""What viewers see of one input: its newest frame with the mask, how it fares, the last minute.

The pipeline puts frames in and never waits. A frame that nobody took is replaced; one that somebody
asks for is encoded once for all, in a thread of its own, and only then.
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
from mrcfa.video.feed import Arrival, Clock
from mrcfa.video.segment import Tally
from mrcfa.video.sources import Frame

MINUTE = 60
"""Samples that are kept, one a second."""
LONGEST_SIDE = 1280
"""Larger pictures are sent at a half, a third, … of their size."""
_QUALITY = 80


@dataclass(frozen=True)
class Shot:
    number: int
    """How many frames this input has had, this one included."""
    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]


@dataclass(frozen=True)
class Packet:
    """A shot, ready to be sent; its parts are described by the facts."""

    facts: dict[str, int]
    body: bytes

    def message(self, **more: int) -> bytes:
        """A line of JSON, the frame as JPEG, the mask's classes, deflated row by row."""
        return json.dumps(self.facts | more).encode() + b"\n" + self.body


class Screen:
    def __init__(
        self, name: str, encoder: Executor, changed: Callable[[], None], clock: Clock
    ) -> None:
        self.name = name
        self.shot: Shot | None = None
        self.minute: deque[dict[str, float | None]] = deque(maxlen=MINUTE)
        self._encoder, self._changed, self._clock = encoder, changed, clock
        self._lock = threading.Lock()
        self._state, self._said = "waiting", ""
        self._tally = Tally()
        self._frames, self._waited = 0, 0.0  # since the last sample, and their latencies' sum
        self._sampled = (clock(), 0)
        self._seen = clock()
        self._encoding: tuple[int, asyncio.Future[Packet]] | None = None

    def show(self, arrival: Arrival[Frame], mask: NDArray[np.uint8], tally: Tally) -> None:
        """By the pipeline, with every mask; its arrays are not written to any more."""
        with self._lock:
            number = self.shot.number + 1 if self.shot else 1
            self.shot = Shot(number, arrival.item.image, mask)
            self._tally, self._seen = tally, self._clock()
            self._frames += 1
            self._waited += self._seen - arrival.time
        self._changed()

    def tell(self, state: str, said: str = "") -> str:
        """`live`, `lost` or `ended`, and a sentence for people; returns the state before."""
        before, self._state, self._said = self._state, state, said
        return before

    def sample(self) -> None:
        """Add a point to the minute: what came since the one before it."""
        with self._lock:
            now, dropped = self._clock(), self._tally.dropped
            frames, waited = self._frames, self._waited
            self._frames, self._waited = 0, 0.0
        (before, dropped_before), self._sampled = self._sampled, (now, dropped)
        passed = max(now - before, 1e-6)
        point = {
            "rate": frames / passed,
            "latency": waited / frames * 1e3 if frames else None,
            "dropped": (dropped - dropped_before) / passed,
        }
        self.minute.append({key: value and round(value, 2) for key, value in point.items()})

    def facts(self) -> dict[str, object]:
        """How the input fares now."""
        return {
            "state": self._state,
            "said": self._said,
            "frames": self.shot.number if self.shot else 0,
            "dropped": self._tally.dropped,
            "silent": round(self._clock() - self._seen, 1),
            "last": self.minute[-1] if self.minute else None,
        }

    async def packet(self) -> Packet:
        """The newest shot, if there is one; viewers that ask for it at once share the work."""
        shot = self.shot
        assert shot is not None
        if self._encoding is None or self._encoding[0] != shot.number:
            loop = asyncio.get_running_loop()
            self._encoding = shot.number, loop.run_in_executor(self._encoder, encoded, shot)
        return await asyncio.shield(self._encoding[1])  # a viewer that leaves cancels its own wait


def encoded(shot: Shot) -> Packet:
    pillow = load("PIL.Image")
    step = -(-max(shot.mask.shape) // LONGEST_SIDE)
    mask = np.ascontiguousarray(shot.mask[::step, ::step])
    image = pillow.fromarray(shot.image)
    jpeg = BytesIO()
    (image.reduce(step) if step > 1 else image).save(jpeg, "JPEG", quality=_QUALITY)
    height, width = mask.shape
    facts = {"number": shot.number, "width": width, "height": height, "jpeg": jpeg.tell()}
    return Packet(facts, jpeg.getvalue() + zlib.compress(mask.data, 1))
