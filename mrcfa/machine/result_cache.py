"""Intermediate results in the user's cache, so that a long command can continue after an interrupt.

Caching is best effort: if the cache is full, missing or cannot be written, a warning says that the
work will start again. Processes that do the same work share the entries, and each may clear them.
"""

import hashlib
import shutil
from pathlib import Path

from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError
from mrcfa.machine.files import cache_folder, write_whole

_DIGEST_BYTES = 32


class ResultCache:
    """Cached results by name; each file starts with the SHA-256 of its content."""

    def __init__(self, work: str, identity: str) -> None:
        """Open the cache for a kind of work; `identity` is the fingerprint of its inputs."""
        try:
            self._folder: Path | None = cache_folder(work, identity)
        except MrcfaError as error:
            self._stop(error)

    def load(self, name: str) -> bytes | None:
        """The content of an entry; None if it does not exist or is damaged."""
        if self._folder is None:
            return None
        path = self._folder / name
        try:
            file = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._stop(f"{path} cannot be read: {error.strerror}")
            return None
        digest, content = file[:_DIGEST_BYTES], file[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() == digest:
            return content
        warn(f"{path} is damaged, so this result is computed again")
        return None

    def save(self, name: str, content: bytes) -> None:
        """Write an entry; after a failure, nothing more is cached."""
        if self._folder is None:
            return
        try:
            write_whole(self._folder / name, hashlib.sha256(content).digest() + content)
        except MrcfaError as error:
            self._stop(error)

    def clear(self) -> None:
        """Remove all entries."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self, reason: object) -> None:
        warn(f"{reason}; nothing is cached, so this work starts again if it is interrupted")
        self._folder = None
