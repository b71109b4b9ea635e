"""Frames and answers in memory that server and client share, where both are on one host.

A region belongs to whoever is asking right now, so there are as many as streams ask at once,
however many sequences come and go.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from mrcfa.backends.address import Address

REGISTER_S = 5.0


@dataclass(frozen=True)
class Ends:
    """Bytes of a frame, and type and shape of its answer."""

    frame_bytes: int
    answer: np.dtype[Any]
    answer_shape: tuple[int, ...]


class SharedFrames:
    """The regions of one client, or none where nothing can be shared."""

    def __init__(self, client: Any, ends: Ends, usable: bool) -> None:
        self._client, self._ends, self._usable = client, ends, usable
        self._free: list[Region] = []
        self._lock = Lock()

    @classmethod
    def of(cls, client: Any, address: Address, ends: Ends) -> "SharedFrames":
        """A server in a container may have another /dev/shm: whether it sees ours is tried."""
        shared = cls(client, ends, address.shared_memory and address.here and not address.tls)
        with shared.lent():
            return shared

    @contextmanager
    def lent(self) -> Iterator["Region | None"]:
        """A region that nobody else uses meanwhile. One whose use failed is not lent again."""
        region = self._taken() if self._usable else None
        yield region
        if region is not None:
            with self._lock:
                self._free.append(region)

    def _taken(self) -> "Region | None":
        with self._lock:
            if self._free:
                return self._free.pop()
        try:
            return Region(self._client, self._ends)
        except (InferenceServerException, OSError):
            self._usable = False
            return None


class Region:
    """A frame, and behind it room for its answer."""

    def __init__(self, client: Any, ends: Ends) -> None:
        self._ends, self._name = ends, f"mrcfa-{secrets.token_hex(8)}"
        self._answer_bytes = int(np.prod(ends.answer_shape)) * ends.answer.itemsize
        size = ends.frame_bytes + self._answer_bytes
        place = Path("/dev/shm", self._name)
        with os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "rb+") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                memory = mmap(file.fileno(), size)
                client.register_system_shared_memory(
                    self._name, f"/{self._name}", size, client_timeout=REGISTER_S
                )
            finally:
                # Both sides have it mapped now; without a name nothing of it outlives its users.
                place.unlink()
        self._bytes: NDArray[np.uint8] = np.ndarray(size, np.uint8, memory)
        finalize(self, _let_go, client, self._name)

    def put(self, frames: NDArray[np.uint8], given: Any, wanted: Any) -> None:
        self._bytes[: frames.size] = frames.reshape(-1)
        given.set_shared_memory(self._name, frames.size)
        wanted.set_shared_memory(self._name, self._answer_bytes, self._ends.frame_bytes)

    def answer(self) -> NDArray[Any]:
        """A copy, because the next frame's answer comes to the same place."""
        found = self._bytes[self._ends.frame_bytes :][: self._answer_bytes]
        return found.view(self._ends.answer).reshape(self._ends.answer_shape).copy()


def _let_go(client: Any, name: str) -> None:
    with suppress(Exception):  # a server that is away holds nothing
        client.unregister_system_shared_memory(name, client_timeout=1.0)
