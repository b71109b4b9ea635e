"""The cache of intermediate results, in cache folders that fail in every way."""

from pathlib import Path

import pytest

from mrcfa.machine.result_cache import ResultCache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mrcfa" / "work" / "identity"


def test_an_entry_is_there_until_the_cache_is_cleared(folder):
    cache = ResultCache("work", "identity")
    assert cache.load("one") is None
    cache.save("one", b"content")
    assert ResultCache("work", "identity").load("one") == b"content"
    assert ResultCache("work", "other").load("one") is None
    cache.clear()
    assert not folder.exists()


@pytest.mark.parametrize("length", [0, 1, 38])
def test_a_damaged_entry_is_reported_and_not_used(folder, length, capsys):
    cache = ResultCache("work", "identity")
    cache.save("one", b"content")
    (folder / "one").write_bytes((folder / "one").read_bytes()[:length])
    assert cache.load("one") is None
    assert str(folder / "one") in capsys.readouterr().err
    cache.save("one", b"again")
    assert cache.load("one") == b"again"


def test_a_full_disk_is_reported_once_and_the_work_goes_on(folder, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mrcfa.machine.files.os.fsync", full)
    cache = ResultCache("work", "identity")
    for name in "abc":
        cache.save(name, b"content")
    assert cache.load("a") is None
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_a_cache_that_is_no_folder_is_reported_and_the_work_goes_on(folder, capsys):
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    cache = ResultCache("work", "identity")
    assert cache.load("one") is None
    cache.save("one", b"content")
    cache.clear()
    assert str(folder) in capsys.readouterr().err


def test_a_user_without_a_home_is_reported_and_the_work_goes_on(monkeypatch, capsys):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    cache = ResultCache("work", "identity")
    cache.save("one", b"content")
    assert cache.load("one") is None
    cache.clear()
    assert "XDG_CACHE_HOME" in capsys.readouterr().err


def test_processes_with_the_same_work_may_clear_the_cache_while_others_go_on(folder):
    first, second = ResultCache("work", "identity"), ResultCache("work", "identity")
    second.save("one", b"1")
    first.clear()
    second.save("two", b"2")
    assert (second.load("one"), second.load("two")) == (None, b"2")
