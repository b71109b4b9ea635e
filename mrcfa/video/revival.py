"""Sources that say how they fare, and live ones that are opened again when they break off."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from mrcfa.errors import MrcfaError
from mrcfa.video.feed import Clock
from mrcfa.video.sources import Frame, Source

RETRY_S = 1.0

Tell = Callable[[str, str], None]
"""Takes a state, `live`, `lost` or `ended`, and a sentence about it."""


class Followed(Source):
    """The same frames, and word of their end."""

    def __init__(self, source: Source, tell: Tell) -> None:
        super().__init__(source.name, source.rate, source.total)
        self.live = source.live
        self._source, self._tell = source, tell

    def __iter__(self) -> Iterator[Frame]:
        self._tell("live", "")
        try:
            for frame in self._source:
                self.aspect = self._source.aspect
                yield frame
            self.complaint = self._source.complaint
        except Exception as error:
            self._tell("ended", f"{error}")
            raise
        self._tell("ended", self.complaint or "")


class Revived(Followed):
    """A live source that never ends: when it breaks off, it is opened again until it is back.

    The frames that come then are numbered as if it had gone on all the time. They are a take of
    their own, because a state from before the gap knows another scene.
    """

    def __init__(
        self,
        source: Source,
        tell: Tell,
        reopen: Callable[[], Source],
        wait: Callable[[threading.Event], object] = lambda stopped: stopped.wait(RETRY_S),
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(source, tell)
        self._reopen, self._wait, self._clock = reopen, wait, clock
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Open it no more."""
        self._stopped.set()

    def __iter__(self) -> Iterator[Frame]:
        began, due, take = self._clock(), 0, 0
        source: Source | None = self._source
        while source is not None:
            first = max(due, round(float(self.rate) * (self._clock() - began))) if take else 0
            try:
                for frame in source:
                    self._tell("live", "")
                    self.aspect = source.aspect
                    due = first + int(frame.name) + 1
                    yield replace(frame, name=f"{due - 1:06d}", take=take)
                said = source.complaint or f"{source.name} gives no more frames"
            except MrcfaError as error:
                said = str(error)
            source = self._back(said)
            take += 1

    def _back(self, said: str) -> Source | None:
        """The source, once it can be opened again; None if nobody waits for it any more."""
        while True:
            self._tell("lost", said)
            self._wait(self._stopped)
            if self._stopped.is_set():
                return None
            try:
                return self._reopen()
            except MrcfaError as error:
                said = str(error)
