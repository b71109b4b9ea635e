"""Files that are whole or not there."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from naming import naming

from mrcfa.errors import AlreadyExists, InvalidValue, NotFound
from mrcfa.machine.files import (
    CannotWrite,
    cache_folder,
    check_writable,
    fingerprint,
    natural_order,
    replaced,
    scratch_folder,
    sha256,
    write_whole,
)


def test_a_file_is_replaced_in_one_step_with_the_users_permissions(tmp_path):
    path = tmp_path / "new" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("folder", [False, True])
def test_work_that_fails_leaves_what_was_there(tmp_path, folder):
    path = tmp_path / "place"
    if not folder:
        path.write_text("before")

    def fail():
        with replaced(path, folder=folder) as part:
            (part / "x" if folder else part).write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if folder else ["place"])
    assert folder or path.read_text() == "before"


def test_a_folder_in_use_is_replaced_only_if_that_is_meant(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "mine").touch()
    with (
        pytest.raises(AlreadyExists, match=naming(path)),
        replaced(path, folder=True),
    ):
        pytest.fail("was written")
    with replaced(path, folder=True, over=True) as part:
        (part / "new").touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_what_others_put_there_meanwhile_is_never_lost(tmp_path):
    path = tmp_path / "folder"

    def write():
        with replaced(path, folder=True) as part:
            (part / "mine").touch()
            path.mkdir()
            (path / "theirs").touch()

    with pytest.raises(CannotWrite, match=naming(path, os.strerror(errno.ENOTEMPTY))):
        write()
    assert [entry.name for entry in path.iterdir()] == ["theirs"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_the_current_folder_cannot_be_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue):
        check_writable(Path(), folder=True)
    with pytest.raises(InvalidValue, match=naming(tmp_path)):
        check_writable(tmp_path, folder=True)


def test_frames_are_ordered_by_their_numbers():
    names = ["10.jpg", "2.jpg", "1.jpg"]
    assert sorted(map(Path, names), key=natural_order) == [Path(f"{n}.jpg") for n in (1, 2, 10)]


def test_a_full_disk_is_a_sentence_that_names_the_place(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mrcfa.machine.files.os.fsync", full)
    with pytest.raises(CannotWrite, match=naming(tmp_path / "file", "No space left on device")):
        write_whole(tmp_path / "file", b"content")
    assert not list(tmp_path.iterdir())


def test_a_failure_that_names_another_file_is_not_called_one_of_writing(tmp_path):
    def read():
        with replaced(tmp_path / "file"):
            (tmp_path / "elsewhere").read_bytes()

    with pytest.raises(FileNotFoundError, match="elsewhere"):
        read()
    assert not list(tmp_path.iterdir())


def test_caches_lie_where_the_user_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("peer", "b1") == tmp_path / "mrcfa" / "peer" / "b1"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "mrcfa"


def test_without_a_home_the_way_to_name_a_cache_is_told(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(NotFound, match="XDG_CACHE_HOME"):
        cache_folder("eval")


def test_fingerprints_differ_with_any_fact():
    assert len({fingerprint("a", 1), fingerprint("a", 2), fingerprint("a", "1")}) == 3
    assert fingerprint("a", 1) == fingerprint("a", 1)


def test_the_hash_is_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256(tmp_path / "file").startswith("ba7816bf8f01cfea")


KILLED = """
import os, signal, sys
from pathlib import Path
from mrcfa.machine.files import replaced
with replaced(Path(sys.argv[1]), folder=sys.argv[2] == "True") as part:
    (part / "x" if part.is_dir() else part).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_process_left_goes_when_the_next_one_writes_there(tmp_path, folder):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "place"), str(folder)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    with replaced(tmp_path / "other") as living:
        write_whole(tmp_path / "next", b"content")
        assert {entry.name for entry in tmp_path.iterdir()} == {living.name, "next"}


IN_SCRATCH = """
import os, signal
from mrcfa.machine.files import scratch_folder
with scratch_folder() as folder:
    (folder / "logits").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_files_of_a_killed_process_go_with_the_next_ones(tmp_path, monkeypatch):
    command = [sys.executable, "-c", IN_SCRATCH]
    killed = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr("mrcfa.machine.files.gettempdir", lambda: str(tmp_path))
    with scratch_folder() as folder, scratch_folder() as other:
        assert set(tmp_path.iterdir()) == {folder, other}
        assert left not in {folder, other}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_replaced_is_there_at_every_moment(tmp_path, monkeypatch):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    missing, rename = [], Path.rename

    def renamed(self, target):
        done = rename(self, target)
        missing.append(not path.exists())
        return done

    monkeypatch.setattr(Path, "rename", renamed)
    with replaced(path, folder=True, over=True) as part:
        (part / "new").touch()
    assert not any(missing)
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


BETWEEN_RENAMES = """
import os, signal, sys
from pathlib import Path
from mrcfa.machine import files
files._exchange = lambda one, other: False
rename, renamed = Path.rename, []
def counted(self, target):
    done = rename(self, target)
    renamed.append(target)
    if len(renamed) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
Path.rename = counted
with files.replaced(Path(sys.argv[1]), folder=True, over=True) as part:
    (part / "new").touch()
"""


@pytest.mark.parametrize(("renames", "holds"), [(1, "old"), (2, "new")])
def test_a_folder_that_a_killed_process_moved_aside_comes_back(tmp_path, renames, holds):
    """Where names cannot be exchanged in one step."""
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    command = [sys.executable, "-c", BETWEEN_RENAMES, str(path), str(renames)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    write_whole(tmp_path / "next", b"content")
    assert {entry.name for entry in tmp_path.iterdir()} == {"folder", "next"}
    assert [entry.name for entry in path.iterdir()] == [holds]


def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr("mrcfa.machine.files._exchange", lambda one, other: False)
    test_a_folder_in_use_is_replaced_only_if_that_is_meant(tmp_path)
