"""Reports of the inputs' states to the page and the terminal: live, lost or ended."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from mrcfa.console.addresses import without_secrets
from mrcfa.console.notices import warn
from mrcfa.video.reconnection import MonitoredSource, ReconnectingSource
from mrcfa.video.sources import Source, Span, open_source
from mrcfa.video.view.screens import Screen


@contextmanager
def monitored(
    places: Sequence[str], sources: Sequence[Source], span: Span, screens: Sequence[Screen]
) -> Iterator[list[Source]]:
    """The sources, which report to their screens; inside the block, live ones reconnect.

    With an end in the span they do not reconnect, because it counts from their first frame.
    """
    endless, rest = math.isinf(span.end), Span(stride=span.stride)
    reporting: list[Source] = []
    for place, source, screen in zip(places, sources, screens, strict=True):
        report = partial(_report, screen, place)
        if source.live and endless:
            reopen = partial(open_source, place, rest)
            reporting.append(ReconnectingSource(source, report, reopen))
        else:
            reporting.append(MonitoredSource(source, report))
    try:
        yield reporting
    finally:
        for source in reporting:
            if isinstance(source, ReconnectingSource):
                source.stop()


def _report(screen: Screen, place: str, state: str, message: str) -> None:
    """Show a state on the page, and its changes on the terminal, by the input's name there."""
    message = message.replace(without_secrets(place), screen.name)
    before = screen.set_state(state, message)
    if state == "lost" and before != "lost":
        warn(f"{message}; reconnecting until it is back")
    if state == "live" and before == "lost":
        warn(f"{screen.name} is back")
