"""Signals that end a program: SIGTERM, SIGHUP and SIGQUIT are treated like Ctrl-C (SIGINT)."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SAME_REQUEST_S = 1.0
"""Seconds within which several signals count as one request: closing a terminal, systemd and
wrappers that forward signals all send two."""


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle the signals in `ENDING` by `handler` inside the block.

    Signals that the parent process ignores stay ignored, which `nohup` needs. Python delivers
    signals to the main thread only, so in other threads the block changes nothing.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
        before = {
            number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)
        }
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt for all signals in `ENDING`, which Python does for Ctrl-C only."""
    with handled(signal.default_int_handler):
        yield


@contextmanager
def first_interrupt() -> Iterator[threading.Event]:
    """An event that the first signal sets; a later signal raises KeyboardInterrupt."""
    interrupted = threading.Event()
    first: float | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if first is None:  # assigned before the event, whose lock this handler may interrupt
            first = time.monotonic()
            interrupted.set()
        elif time.monotonic() - first > SAME_REQUEST_S:
            signal.default_int_handler(number, frame)

    with handled(note):
        yield interrupted
