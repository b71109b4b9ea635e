"""Results that a long command keeps in the user's cache, so that it goes on if interrupted.

Keeping is best effort: with a full, unwritable or missing cache it begins anew, and says so.
Processes that do the same work share the entries, and any of them may remove all at its end.
"""

import hashlib
import shutil
from pathlib import Path

from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError
from mrcfa.machine.files import cache_folder, write_whole

_DIGEST_BYTES = 32


class Kept:
    """Entries by name, each a file that begins with its SHA-256."""

    def __init__(self, work: str, identity: str) -> None:
        try:
            self._folder: Path | None = cache_folder(work, identity)
        except MrcfaError as error:
            self._stop(error)

    def load(self, name: str) -> bytes | None:
        """None if there is no such entry, or only a damaged one."""
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
        warn(f"{path} is damaged, so what it kept is computed again")
        return None

    def save(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        try:
            write_whole(self._folder / name, hashlib.sha256(content).digest() + content)
        except MrcfaError as error:
            self._stop(error)

    def forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self, why: object) -> None:
        warn(f"{why}; nothing is kept, so this work begins anew if it is interrupted")
        self._folder = None
