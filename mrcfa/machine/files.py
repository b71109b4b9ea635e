"""Atomic writes (a temporary name, then a rename), locks, the cache folder, SHA-256.

Files and folders are written beside their final name and renamed at the end, so a name always has
its complete content, and failed work leaves the old content. A writer locks its temporary file or
folder until its process ends; an unlocked one was left by a killed process and is removed.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

from mrcfa.errors import AlreadyExists, InvalidValue, MrcfaError, NotFound

PARTIAL = ".mrcfa-partial"
"""Suffix of files and folders that are not complete yet."""
_ASIDE = ".mrcfa-old"
"""Suffix of a folder that was moved aside for its successor, where names cannot be exchanged."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class CannotWrite(MrcfaError):
    """The system refused to write, for example because the disk is full."""


class CutShort(CannotWrite):
    """The system refused to write more, but the finished part of the output is kept."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replaced(path) as part:
        part.write_bytes(content)


@contextmanager
def replaced(path: Path, folder: bool = False, over: bool = False) -> Iterator[Path]:
    """A temporary path to write to, renamed to `path` if the block succeeds.

    A file replaces an existing file. A folder replaces an existing one only with `over`.
    """
    check_writable(path, folder, over)
    with write_errors_reported(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        part, held = _new_part(path, folder)
    try:
        with write_errors_reported(str(path), within=part):
            yield part
        with write_errors_reported(str(path)):
            if folder:
                _move_folder(part, path.resolve(), over)
            else:
                _flush(part)
                part.replace(path)
    finally:
        _remove(part)
        os.close(held)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private temporary folder, removed when the block ends.

    Those of killed processes go when the next one is made.
    """
    with write_errors_reported("temporary files"):
        place = Path(gettempdir())
        _sweep(place)
        part, held = _new_part(place / "mrcfa", folder=True, mode=0o700)
    try:
        with write_errors_reported(str(part), within=part):
            yield part
    finally:
        _remove(part)
        os.close(held)


def check_writable(path: Path, folder: bool = False, over: bool = False) -> None:
    """Raise an error if `path` cannot be written; a cheap check before long work."""
    with write_errors_reported(str(path)):
        if folder and not over and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise AlreadyExists(f"{path} already exists and is not empty; name a new folder")
        if folder and path.exists() and (path.is_mount() or path.resolve() == Path.cwd()):
            raise InvalidValue(f"{path} cannot be replaced as a whole; name a new folder inside it")
        if not folder and path.is_dir():
            raise InvalidValue(f"{path} is a folder; name a file")
        if not folder and path.exists() and not path.is_file():
            raise InvalidValue(
                f"{path} is a device or a pipe, which cannot be replaced; name a file"
            )
        above = next(parent for parent in path.absolute().parents if parent.exists())
        TemporaryFile(dir=above).close()


@contextmanager
def write_errors_reported(place: str, within: Path | None = None) -> Iterator[None]:
    """Turn the system's write errors in this block into `CannotWrite`, which names `place`.

    With `within`, errors that name a file outside that folder pass unchanged.
    """
    try:
        yield
    except BrokenPipeError:
        with suppress(OSError):  # the interpreter flushes again on exit, which must not fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CannotWrite(f"cannot write {place}: its reader has closed it") from None
    except OSError as error:
        named = error.filename
        if within and isinstance(named, str) and not _inside(named, within):
            raise
        raise CannotWrite(f"cannot write {place}: {error.strerror or error}") from None


def _inside(name: str, folder: Path) -> bool:
    return Path(name).absolute().is_relative_to(folder.absolute())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder and hold it; the lock also ends with the process.

    On file systems without locks, such as some network ones, nothing is locked.
    """
    while True:
        held = os.open(folder, os.O_RDONLY)
        try:
            _lock(held)
            if _is_at(held, folder):  # else the folder was replaced in the meantime
                yield
                return
        finally:
            os.close(held)


def _lock(held: int, wait: bool = True) -> bool:
    """True if this process got the lock; False if another has it or the system has no locks."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _is_at(held: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), path.stat())
    except FileNotFoundError:
        return False


def _new_part(path: Path, folder: bool, mode: int = 0o777) -> tuple[Path, int]:
    """A new temporary file or folder beside `path`, and the descriptor that holds its lock."""
    while True:
        part = path.parent / f".{path.name}.{secrets.token_hex(4)}{PARTIAL}"
        part.mkdir(mode) if folder else part.touch()
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            held = os.open(part, os.O_RDONLY)
            _lock(held)
            if _is_at(held, part):
                return part, held
            os.close(held)


@contextmanager
def held(part: Path) -> Iterator[None]:
    """Lock a temporary file, so that other processes do not remove it as a left-over."""
    lock = os.open(part, os.O_RDONLY)
    try:
        _lock(lock, wait=False)
        yield
    finally:
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Remove a folder's unlocked temporary files, which killed processes left."""
    for part in (*folder.glob(f".*{PARTIAL}"), *folder.glob(f".*{_ASIDE}")):
        with suppress(OSError):
            held = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(held, wait=False) and _is_at(held, part):
                    _clear_up(part)
            finally:
                os.close(held)


def _clear_up(part: Path) -> None:
    """Remove a left-over; a folder that was moved aside takes its name back if that is free."""
    path = part.with_name(part.stem[1:].rpartition(".")[0])
    if part.suffix == _ASIDE and not path.exists():
        part.rename(path)
    else:
        _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def cache_folder(*parts: str) -> Path:
    """A folder in the user's cache, for files that can be made again."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # the user has no home folder
        raise NotFound(
            f"there is no cache folder ({error}); name one with XDG_CACHE_HOME"
        ) from None
    return home.joinpath("mrcfa", *parts)


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(*facts: object) -> str:
    """A short hash of facts, as the name of a result that depends on exactly these."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _move_folder(part: Path, path: Path, over: bool) -> None:
    """Rename a folder to `path`, or with `over` exchange it with the folder there.

    A folder of that name exists at every moment. Without `over`, a rename succeeds only if the name
    is free or an empty folder has it.
    """
    if not over or not path.exists():
        part.rename(path)
        return
    with locked(path):  # wait for processes that add to the old folder
        if _exchange(part, path):
            return
        aside = part.with_suffix(_ASIDE)
        path.rename(aside)
        try:
            part.rename(path)
        except OSError:
            aside.rename(path)
            raise
        _remove(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False if the system or the file system cannot."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if not function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def natural_order(path: Path) -> list[tuple[int, str]]:
    """A sort key that puts frame 2 before frame 10."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _flush(path: Path) -> None:
    """Flush a file to the disk, so that a crash never leaves the name without the content."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
