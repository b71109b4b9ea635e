"""TensorRT-RTX compiles an engine once for a GPU, and whatever befalls the cache is told."""

import errno
import os
import re
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
from fake_gpu import fake_tensorrt
from naming import naming

from mrcfa import Stream
from mrcfa.backends import open_backend
from mrcfa.bundle import Bundle


def caches():
    return sorted(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.cache"))


@pytest.fixture
def rtx_built(built):
    """`built`, where TensorRT-RTX runs it: TensorRT itself keeps no cache."""

    def build():
        path = built()
        if Bundle.open(path).manifest.engines[0].flavour != "rtx":
            pytest.skip("not run: TensorRT-RTX is not installed here, and TensorRT has no cache")
        return path

    return build


def opened_and_closed(path, **options):
    with Stream(path, "tensorrt", **options):
        pass


def test_the_second_start_and_every_further_stream_compile_nothing(driver, built, clip, capsys):
    path, frame = built(), clip(1, 96, 160)[0]
    with Stream(path, "tensorrt") as first, Stream(path, "tensorrt") as second:
        first(frame)
        second(frame)
    assert driver.compilations == 2  # encoder and decoder
    assert len(caches()) == 1
    opened_and_closed(path)
    assert driver.compilations == 2
    assert capsys.readouterr().err == ""


def test_opening_a_backend_fills_the_cache(driver, built):
    path = built()
    open_backend(Bundle.open(path), "tensorrt")
    assert (driver.compilations, len(caches())) == (2, 1)
    opened_and_closed(path)
    assert driver.compilations == 2


def test_each_engine_and_each_gpu_has_a_cache_of_its_own(driver, built):
    path = built()
    opened_and_closed(path)
    driver.device_name = "NVIDIA T4"
    opened_and_closed(path)
    opened_and_closed(built(precision="fp32"))
    assert len(caches()) == 3


def test_a_file_of_another_gpu_is_told_and_made_anew(driver, built, capsys):
    path = built()
    opened_and_closed(path)
    (mine,) = caches()
    driver.device_name = "NVIDIA T4"
    opened_and_closed(path)
    (other,) = set(caches()) - {mine}
    mine.write_bytes(other.read_bytes())
    driver.device_name = "Quadro RTX 6000"
    opened_and_closed(path)
    assert re.search(naming(mine, "API Usage"), capsys.readouterr().err)
    opened_and_closed(path)
    assert capsys.readouterr().err == ""
    assert driver.compilations == 6


@pytest.mark.parametrize("spoil", [lambda all: all[:-1], lambda all: b"", lambda all: b"x" + all])
def test_a_damaged_file_never_reaches_tensorrt(spoil, driver, rtx_built, capsys):
    path = rtx_built()
    opened_and_closed(path)
    (file,) = caches()
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))
    opened_and_closed(path)
    assert re.search(naming(file, "TensorRT-RTX"), capsys.readouterr().err)
    opened_and_closed(path)
    assert capsys.readouterr().err == ""
    driver.check_cache(file.read_bytes(), whole)


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(
    driver, rtx_built, clip, capsys, monkeypatch, tmp_path
):
    (tmp_path / "file").touch()  # root may write anywhere, but not below a file
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with Stream(rtx_built(), "tensorrt") as stream:
        assert stream(clip(1, 96, 160)[0]).shape == (96, 160)
    told = capsys.readouterr().err
    read, written = told.splitlines()
    things = naming(tmp_path / "file", os.strerror(errno.ENOTDIR), "TensorRT-RTX")
    assert re.search(things, read)
    assert re.search(things, written)


def test_a_user_without_a_home_has_no_cache(driver, rtx_built, capsys, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    opened_and_closed(rtx_built())
    things = ("Could not determine home directory.", "XDG_CACHE_HOME")
    assert re.search(naming(*things), capsys.readouterr().err)


def fill(path, start):
    start.wait()
    opened_and_closed(path)


def test_processes_that_fill_one_cache_at_once_leave_a_whole_one(double, built, capsys):
    path, fork = built(), get_context("fork")
    start = fork.Event()
    processes = [fork.Process(target=fill, args=(path, start)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert [file.name for file in caches()[0].parent.iterdir()] == [caches()[0].name]
    opened_and_closed(path)
    assert double.compilations == 0  # in this process
    assert capsys.readouterr().err == ""


def test_tensorrt_itself_has_no_such_cache(double, built, clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(double, "tensorrt", "10.3.0"))
    path = built(flavour="tensorrt", tensorrt="10.3.0")
    with Stream(path, "tensorrt") as stream:
        stream(clip(1, 96, 160)[0])
    assert caches() == []
