"""Signals that ask a program to end: SIGTERM, SIGHUP and SIGQUIT mean the same as Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = [
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if name in signal.Signals.__members__
]
ONE_WISH_S = 1.0
"""Signals that come so close together are one wish: a terminal that closes, systemd and wrappers
that pass signals on all send two."""


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Pass every ending signal to the handler inside the block.

    A signal that the parent process has ignored stays ignored, as `nohup` wants it. Only the main
    thread receives signals; in any other the block changes nothing.
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
    """Raise KeyboardInterrupt at every ending signal, as Python does at Ctrl-C alone."""
    with handled(signal.default_int_handler):
        yield


@contextmanager
def first_interrupt() -> Iterator[threading.Event]:
    """An event that the first signal sets, instead of raising; a later wish raises again."""
    interrupted = threading.Event()
    first: float | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if first is None:  # set before the event, whose lock this handler may interrupt
            first = time.monotonic()
            interrupted.set()
        elif time.monotonic() - first > ONE_WISH_S:
            signal.default_int_handler(number, frame)

    with handled(note):
        yield interrupted
