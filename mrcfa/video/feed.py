"""Queues of frames between sources and the backend; one thread reads each source.

A recording waits for the backend. A live source does not: its newest frame replaces the waiting
one, which counts as dropped, so that a slow backend does not increase latency.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
Clock = Callable[[], float]

_POLL_S = 0.1
_GRACE_S = 1.0


@dataclass(frozen=True)
class Arrival(Generic[_Item]):
    """An item with the time at which its source produced it."""

    item: _Item
    time: float
    """Seconds on the feed's clock."""


class Feed(Generic[_Item]):
    """The queue of one source: its newest item with `newest`, else up to `depth` items in order."""

    def __init__(
        self,
        items: Iterable[_Item],
        newest: bool = False,
        depth: int = 4,
        changed: threading.Condition | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._items, self._newest, self._depth, self._clock = items, newest, depth, clock
        self.changed = changed or threading.Condition()
        """Notified at every change; feeds that one thread waits for share it."""
        self.dropped = 0
        self.failure: BaseException | None = None
        """The exception that ended the source, if any."""
        self._waiting: deque[Arrival[_Item]] = deque()
        self._ended = self._abandoned = False
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True if the queue is empty and the source has ended."""
        return self._ended and not self._waiting

    def take(self) -> Arrival[_Item] | None:
        """Remove and return the oldest item, or None; the caller must hold `changed`."""
        if not self._waiting:
            return None
        self.changed.notify_all()
        return self._waiting.popleft()

    def abandon(self) -> None:
        """Stop reading and discard waiting items; those of a live source count as dropped."""
        with self.changed:
            self._abandoned = True
            self.dropped += len(self._waiting) if self._newest else 0
            self._waiting.clear()
            self.changed.notify_all()
        self._thread.join(_GRACE_S)  # a silent camera would block much longer

    def _produce(self) -> None:
        try:
            for item in self._items:
                self._offer(Arrival(item, self._clock()))
                if self._abandoned:
                    return
        except BaseException as error:
            self.failure = error
        with self.changed:
            self._ended = True
            self.changed.notify_all()

    def _offer(self, arrival: Arrival[_Item]) -> None:
        with self.changed:
            if self._newest:
                self.dropped += len(self._waiting)
                self._waiting.clear()
            while len(self._waiting) >= self._depth and not self._abandoned:
                self.changed.wait()
            if not self._abandoned:
                self._waiting.append(arrival)
                self.changed.notify_all()


def take_round(
    feeds: Sequence[Feed[_Item]], wait: bool, stop: threading.Event
) -> dict[int, Arrival[_Item]]:
    """One item of every feed that has one, by the feed's index.

    With `wait`, wait for at least one item, until all feeds have ended or `stop` is set.
    """
    with feeds[0].changed:
        while not stop.is_set():
            taken = {number: feed.take() for number, feed in enumerate(feeds)}
            found = {number: arrival for number, arrival in taken.items() if arrival is not None}
            if found or not wait or all(feed.ended for feed in feeds):
                return found
            feeds[0].changed.wait(_POLL_S)
    return {}


def prefetched(items: Iterable[_Item], depth: int = 4) -> Iterator[_Item]:
    """The same items, produced by another thread up to `depth` items ahead."""
    feed = Feed(items, depth=depth)
    try:
        while arrivals := take_round([feed], wait=True, stop=threading.Event()):
            yield arrivals[0].item
    finally:
        feed.abandon()
    if feed.failure is not None:
        raise feed.failure
