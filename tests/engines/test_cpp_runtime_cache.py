"""TensorRT-RTX compiles an engine once for a GPU, whichever language opens it first."""

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import Segment, masks_in, with_engines
from fake_gpu import Driver, fake_tensorrt
from naming import names

from mrcfa import Stream
from mrcfa.machine.hardware import Gpu

pytestmark = pytest.mark.thorough
VERSION = "10.3.0.26"


class Rtx:
    """A bundle on the fake TensorRT-RTX, with a cache folder and a count of compilations."""

    def __init__(self, segment: Segment, bundle: Path, folder: Path) -> None:
        self._segment, self.bundle, self._folder = segment, bundle, folder
        self.cache = folder / "cache"

    def __call__(self, *words: Any, **environment: str) -> tuple[Any, int]:
        """The finished process, and the number of engines that it compiled."""
        told = self._folder / "compiled"
        told.write_text("")
        places = {"XDG_CACHE_HOME": str(self.cache), "FAKE_RTX_COMPILED": str(told)}
        done = self._segment(self.bundle, *words, **{**places, **environment})
        assert done.returncode == 0, done.stderr.decode()
        return done, len(told.read_text().splitlines())

    @property
    def files(self) -> list[Path]:
        return sorted((self.cache / "mrcfa/tensorrt-rtx").iterdir())


@pytest.fixture
def rtx(fake_rtx: Segment, copy: Path, tmp_path: Path) -> Rtx:
    return Rtx(fake_rtx, with_engines(copy, flavour="rtx", tensorrt=VERSION), tmp_path)


def test_tensorrt_rtx_compiles_once_for_each_engine_and_gpu(rtx, clip, bundle, pythons_masks):
    frames = clip(6, 96, 160)
    for compilations in (2, 0):
        done, count = rtx(frames=frames)
        assert (count, done.stderr) == (compilations, b"")
        masks = pythons_masks(bundle("b0"), "fp16", frames)
        assert np.array_equal(masks_in(done, frames), masks)
    assert rtx("--info", "--precision", "fp32")[1] == 2
    assert len(rtx.files) == 2


@pytest.fixture
def python(rtx: Rtx, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """`python()` opens and closes the same bundle on the same GPU, and counts compilations."""
    driver = Driver("Fake RTX")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", fake_tensorrt(driver, "tensorrt_rtx", VERSION))
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu(driver.device_name, driver.sm)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(rtx.cache))

    def opened() -> int:
        before = driver.compilations
        with Stream(rtx.bundle, "tensorrt"):
            return driver.compilations - before

    yield opened
    gc.collect()
    assert driver.misuses == []


@pytest.mark.parametrize("first", ["python", "cpp"])
def test_what_one_language_compiled_serves_the_other(first, rtx, python, capfd):
    languages = {"python": python, "cpp": lambda: rtx("--info")[1]}
    assert languages.pop(first)() == 2
    (file,) = rtx.files
    content = file.read_bytes()
    (second,) = languages.values()
    assert second() == 0
    assert (rtx.files, file.read_bytes()) == ([file], content)
    assert capfd.readouterr().err == ""


FOREIGN = b'["Fake L4", "13000", []]'


@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (b"", True),
        (b"\0" * 4096, True),
        (FOREIGN, True),
        (sha256(FOREIGN).hexdigest().encode() + FOREIGN, False),
    ],
)
def test_a_damaged_or_foreign_cache_is_told_and_made_anew(content, damaged, rtx):
    rtx("--info")
    first = rtx.files[0]
    first.write_bytes(content)
    done, count = rtx("--info")
    told = done.stderr.decode()
    assert (count, told.count("\n")) == (2, 1)
    assert names(told, first, "TensorRT-RTX")
    assert names(told, "driver") is not damaged
    assert rtx("--info")[1] == 0


def test_a_cache_that_cannot_be_written_is_told_and_the_work_goes_on(rtx):
    rtx.cache.write_text("a file where the folder should be")
    for _ in range(2):
        done, count = rtx("--info")
        assert count == 2
        said = done.stderr.decode()
        assert names(said, rtx.cache, "TensorRT-RTX")
        assert said.count("\n") == 1


def test_two_processes_may_fill_one_cache(rtx):
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: rtx("--info")[0], range(2)))
    assert [done.stderr for done in both] == [b"", b""]
    assert len(rtx.files) == 1, "nothing half written is left"
    assert rtx("--info")[1] == 0
