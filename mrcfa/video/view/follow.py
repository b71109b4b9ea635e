"""The inputs of a run as its viewers follow them: alive, lost and back, or at their end."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from mrcfa.console import notices
from mrcfa.console.addresses import without_secrets
from mrcfa.video.revival import Followed, Revived
from mrcfa.video.sources import Source, Span, open_source
from mrcfa.video.view.screens import Screen


@contextmanager
def following(
    places: Sequence[str], sources: Sequence[Source], span: Span, screens: Sequence[Screen]
) -> Iterator[list[Source]]:
    """The sources, which tell their screens; within the block live ones come back when they can.

    With an end in the span they do not: it is counted from when they were opened first.
    """
    endless, rest = math.isinf(span.end), Span(stride=span.stride)
    with_word: list[Source] = []
    for place, source, screen in zip(places, sources, screens, strict=True):
        tell = partial(_tell, screen, place)
        if source.live and endless:
            with_word.append(Revived(source, tell, partial(open_source, place, rest)))
        else:
            with_word.append(Followed(source, tell))
    try:
        yield with_word
    finally:
        for each in with_word:
            if isinstance(each, Revived):
                each.stop()


def _tell(screen: Screen, place: str, state: str, said: str) -> None:
    """Say it on the page, and what changes on the terminal, with the name that the page has."""
    said = said.replace(without_secrets(place), screen.name)
    before = screen.tell(state, said)
    if state == "lost" and before != "lost":
        notices.tell(f"{said}; trying again until it is back")
    if state == "live" and before == "lost":
        notices.tell(f"{screen.name} is back")
