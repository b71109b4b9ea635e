"""What is kept to go on after an interruption, in caches that fail in every way."""

from pathlib import Path

import pytest

from mrcfa.machine.kept import Kept


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mrcfa" / "work" / "identity"


def test_an_entry_is_there_until_all_is_forgotten(folder):
    kept = Kept("work", "identity")
    assert kept.load("one") is None
    kept.save("one", b"content")
    assert Kept("work", "identity").load("one") == b"content"
    assert Kept("work", "other").load("one") is None
    kept.forget()
    assert not folder.exists()


@pytest.mark.parametrize("length", [0, 1, 38])
def test_a_damaged_entry_is_told_and_not_used(folder, length, capsys):
    kept = Kept("work", "identity")
    kept.save("one", b"content")
    (folder / "one").write_bytes((folder / "one").read_bytes()[:length])
    assert kept.load("one") is None
    assert str(folder / "one") in capsys.readouterr().err
    kept.save("one", b"again")
    assert kept.load("one") == b"again"


def test_a_full_disk_is_told_once_and_the_work_goes_on(folder, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mrcfa.machine.files.os.fsync", full)
    kept = Kept("work", "identity")
    for name in "abc":
        kept.save(name, b"content")
    assert kept.load("a") is None
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_a_cache_that_is_no_folder_is_told_and_the_work_goes_on(folder, capsys):
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    kept = Kept("work", "identity")
    assert kept.load("one") is None
    kept.save("one", b"content")
    kept.forget()
    assert str(folder) in capsys.readouterr().err


def test_a_user_without_a_home_is_told_and_the_work_goes_on(monkeypatch, capsys):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    kept = Kept("work", "identity")
    kept.save("one", b"content")
    assert kept.load("one") is None
    kept.forget()
    assert "XDG_CACHE_HOME" in capsys.readouterr().err


def test_processes_with_the_same_work_may_forget_it_while_others_go_on(folder):
    first, second = Kept("work", "identity"), Kept("work", "identity")
    second.save("one", b"1")
    first.forget()
    second.save("two", b"2")
    assert (second.load("one"), second.load("two")) == (None, b"2")
