"""Atomic writes (a temporary name, then a rename), locks, the cache folder, SHA-256.

Everything is written beside its final name and renamed at the end: whoever sees the name sees all
of it, and work that fails leaves what was there before. A writer locks its temporary file or
folder, and the lock ends with the process: what nobody holds was left by one that was killed.
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
"""How the names of files and folders end that are not whole yet."""
_ASIDE = ".mrcfa-old"
"""Of a folder that made room for its successor, where names cannot be exchanged."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class CannotWrite(MrcfaError):
    """The system refused to write, as a full disk does."""


class CutShort(CannotWrite):
    """The system refused to write on, but what was finished before that is kept."""


def write_whole(path: Path, content: bytes) -> None:
    with replaced(path) as part:
        part.write_bytes(content)


@contextmanager
def replaced(path: Path, folder: bool = False, over: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name when the block ends well.

    A file replaces the file of its name. A folder wants its name free, or `over` what is there.
    """
    check_writable(path, folder, over)
    with refusals_told(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        part, held = _new_part(path, folder)
    try:
        with refusals_told(str(path), within=part):
            yield part
        with refusals_told(str(path)):
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
    """A folder among the system's temporary files, for this user alone, that goes with the block.

    Those of killed processes go when the next one is made.
    """
    with refusals_told("temporary files"):
        place = Path(gettempdir())
        _sweep(place)
        part, held = _new_part(place / "mrcfa", folder=True, mode=0o700)
    try:
        with refusals_told(str(part), within=part):
            yield part
    finally:
        _remove(part)
        os.close(held)


def check_writable(path: Path, folder: bool = False, over: bool = False) -> None:
    """Refuse a place where nothing can be written. It costs nothing to ask before long work."""
    with refusals_told(str(path)):
        if folder and not over and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise AlreadyExists(f"{path} is already there and not empty; name a new folder")
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
def refusals_told(place: str, within: Path | None = None) -> Iterator[None]:
    """Turn the system's refusal to write into a sentence that says where.

    A refusal that names a file which is not `within` is of something else, and passes.
    """
    try:
        yield
    except BrokenPipeError:
        with suppress(OSError):  # the interpreter flushes once more on exit: let it not fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CannotWrite(f"nobody reads {place} any more, so writing ended") from None
    except OSError as error:
        named = error.filename
        if within and isinstance(named, str) and not _inside(named, within):
            raise
        raise CannotWrite(f"cannot write {place}: {error.strerror or error}") from None


def _inside(name: str, folder: Path) -> bool:
    return Path(name).absolute().is_relative_to(folder.absolute())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's one lock, after waiting for it; it ends with the process, however that ends.

    Where the file system has no locks, such as some of a network's, nothing is held.
    """
    while True:
        held = os.open(folder, os.O_RDONLY)
        try:
            _lock(held)
            if _is_at(held, folder):  # else another folder took its name meanwhile
                yield
                return
        finally:
            os.close(held)


def _lock(held: int, wait: bool = True) -> bool:
    """True if this process has the lock; False if another has, or if there are no locks here."""
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
    """A new file or folder beside `path`, and the descriptor that holds its lock."""
    while True:
        part = path.parent / f".{path.name}.{secrets.token_hex(4)}{PARTIAL}"
        part.mkdir(mode) if folder else part.touch()
        with suppress(FileNotFoundError):  # it was swept before it was locked
            held = os.open(part, os.O_RDONLY)
            _lock(held)
            if _is_at(held, part):
                return part, held
            os.close(held)


@contextmanager
def held(part: Path) -> Iterator[None]:
    """Keep a file that takes the place of a `replaced` one from being swept by other processes."""
    lock = os.open(part, os.O_RDONLY)
    try:
        _lock(lock, wait=False)
        yield
    finally:
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Clear up after killed processes: what no living one has locked."""
    for part in (*folder.glob(f".*{PARTIAL}"), *folder.glob(f".*{_ASIDE}")):
        with suppress(OSError):
            held = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(held, wait=False) and _is_at(held, part):
                    _clear_up(part)
            finally:
                os.close(held)


def _clear_up(part: Path) -> None:
    """Remove what was half written; what made room for it takes its name back if that is free."""
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
    """Where the user's caches lie: what is lost with them can be made again."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user without a home
        raise NotFound(
            f"there is no cache folder ({error}); name one with XDG_CACHE_HOME"
        ) from None
    return home.joinpath("mrcfa", *parts)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(*facts: object) -> str:
    """A short name for what was made from exactly these."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _move_folder(part: Path, path: Path, over: bool) -> None:
    """Give a folder its name, or exchange it with the one that has it; nothing is ever missing.

    Without `over` nothing is replaced: a rename takes a free name or an empty folder alone.
    """
    if not over or not path.exists():
        part.rename(path)
        return
    with locked(path):  # whoever adds to the old folder now is done first
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
    """Swap two names in one step; False where the system or the file system cannot."""
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
    """A sort key in which frame 2 comes before frame 10."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _flush(path: Path) -> None:
    """To the disk, so that the name never precedes the content."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
