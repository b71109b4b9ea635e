"""Sources that report their state, and live sources that reconnect after a failure."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from mrcfa.errors import MrcfaError
from mrcfa.video.feed import Clock
from mrcfa.video.sources import Frame, Source

RETRY_S = 1.0

Report = Callable[[str, str], None]
"""Called with a state, `live`, `lost` or `ended`, and a sentence about it."""


class MonitoredSource(Source):
    """A source that reports when it starts and ends."""

    def __init__(self, source: Source, report: Report) -> None:
        super().__init__(source.name, source.rate, source.total)
        self.live = source.live
        self._source, self._report = source, report

    def __iter__(self) -> Iterator[Frame]:
        self._report("live", "")
        self._source.form = self.form
        try:
            for frame in self._source:
                self.aspect = self._source.aspect
                yield frame
            self.complaint = self._source.complaint
        except Exception as error:
            self._report("ended", f"{error}")
            raise
        self._report("ended", self.complaint or "")


class ReconnectingSource(MonitoredSource):
    """A live source that never ends: after a failure it is reopened until it is back.

    Frame numbers continue as if frames had come all the time. A new segment starts after the gap,
    because the old state belongs to another scene.
    """

    def __init__(
        self,
        source: Source,
        report: Report,
        reopen: Callable[[], Source],
        wait: Callable[[threading.Event], object] = lambda stopped: stopped.wait(RETRY_S),
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(source, report)
        self._reopen, self._wait, self._clock = reopen, wait, clock
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Do not reconnect any more."""
        self._stopped.set()

    def __iter__(self) -> Iterator[Frame]:
        start, due, segment = self._clock(), 0, 0
        source: Source | None = self._source
        while source is not None:
            first = max(due, round(float(self.rate) * (self._clock() - start))) if segment else 0
            source.form = self.form
            try:
                for frame in source:
                    self._report("live", "")
                    self.aspect = source.aspect
                    due = first + int(frame.name) + 1
                    yield replace(frame, name=f"{due - 1:06d}", segment=segment)
                reason = source.complaint or f"{source.name} sends no more frames"
            except MrcfaError as error:
                reason = str(error)
            source = self._reconnected(reason)
            segment += 1

    def _reconnected(self, reason: str) -> Source | None:
        """The reopened source, after waiting for it; None after `stop`."""
        while True:
            self._report("lost", reason)
            self._wait(self._stopped)
            if self._stopped.is_set():
                return None
            try:
                return self._reopen()
            except MrcfaError as error:
                reason = str(error)
