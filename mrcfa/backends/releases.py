"""Releases of CUDA's and TensorRT's objects, none of which happens while a CUDA graph is recorded.

A recording fails if its thread frees memory, or if any thread waits for the whole CUDA context, as
a release may, and as TensorRT may where it makes an object. A finalizer calls for a release at any
moment, in any thread. So its release waits until no graph is recorded, and then runs in the thread
that recorded.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

_busy = Lock()
"""Held by the thread that records or releases, or in which TensorRT makes an object."""
_waiting: deque[Callable[[], object]] = deque()


def release(action: Callable[[], object]) -> None:
    """Call `action` now, or leave it to the thread that holds the lock at the moment.

    Never waits: a finalizer that waited could wait for the thread that it interrupted.
    """
    _waiting.append(action)
    _release_waiting()


@contextmanager
def none_recorded() -> Iterator[None]:
    """Let no other thread record during the block, at whose end the releases meanwhile follow.

    Threads with such a block, or one of `none_released`, wait for each other; no block is inside
    another.
    """
    try:
        with _busy:
            yield
    finally:
        _release_waiting()


@contextmanager
def none_released() -> Iterator[None]:
    """Release nothing during the block, in which this thread alone records.

    Python's garbage collector is off meanwhile, because objects of other libraries may free memory
    of the GPU too.
    """
    with none_recorded():
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _release_waiting() -> None:
    while _waiting and _busy.acquire(blocking=False):
        try:
            while _waiting:
                _waiting.popleft()()
        finally:
            _busy.release()
