"""Streams of the fake GPU: work runs when somebody waits for it, or, with rivals, when it may."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Work = Callable[[], None]


class Queue:
    """A stream: work that has not run yet, and what is being recorded instead of queued."""

    def __init__(self, context: int) -> None:
        self.context, self.waiting = context, list[Work]()
        self.recording: list[Work] | None = None
        self.recorder, self.spoilt = 0, False
        """The thread that records, and whether a forbidden call was made meanwhile."""
        self.finished = 0
        self._at_work = False

    def add(self, work: Work) -> None:
        (self.waiting if self.recording is None else self.recording).append(work)

    @property
    def end(self) -> int:
        """How much was ever queued: a point in the stream."""
        return self.finished + self._at_work + len(self.waiting)

    @property
    def may_run(self) -> bool:
        """Whether it could go on by itself."""
        if self._at_work or not self.waiting:
            return False
        return not isinstance(self.waiting[0], Wait) or self.waiting[0].reached

    def run_next(self) -> None:
        self._at_work = True
        try:
            self.waiting.pop(0)()
        finally:
            self._at_work = False
        self.finished += 1


@dataclass(frozen=True)
class Wait:
    """Wait for a point in another stream, which runs up to there if it has to."""

    driver: Any
    queue: Queue
    point: int

    @property
    def reached(self) -> bool:
        return self.queue.finished >= self.point

    def __call__(self) -> None:
        """Run the stream up to the point, and whatever else a GPU might run meanwhile."""
        rivals = self.driver.rivals
        with self.driver.executing:
            while not self.reached:
                others = [each for each in self.driver.streams.values() if each.may_run]
                if rivals and others and rivals.random() < RIVALRY:
                    rivals.choice(others).run_next()
                else:
                    self.queue.run_next()


RIVALRY = 0.7
"""How often another stream runs before the one that is waited for."""
