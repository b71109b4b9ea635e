"""The C++ library, built once for all tests, the masks it must give, and bundles to try it on."""

import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import (
    CACHE,
    CPP,
    FAKE,
    FAKE_DRIVER,
    FAKE_RTX,
    ONNXRUNTIME_SOURCES,
    OPTIMIZED,
    RESET,
    SANITIZE,
    TENSORRT_SOURCES,
    Once,
    Segment,
    compiled,
    compiled_object,
    include_of,
    library_objects,
    linked,
    run,
    runner_of,
    tool,
)
from gstreamer_rig import Gst, missing
from tiny_bundle import write_tiny

from mrcfa import Stream


@pytest.fixture(scope="session")
def built(once: Once) -> Once:
    """`once` for everything that is compiled, which differs with the sanitizers."""
    kind = SANITIZE.replace(",", "-")  # a comma in a path would end a word of the linker's
    return lambda name, make: once(f"{name}-{kind}", make)


@pytest.fixture(scope="module")
def onnxruntime(built: Once) -> list[Any]:
    """The wheel's library as words for the linker, under the names that it and programs want."""
    wheel = find_spec("onnxruntime")
    assert wheel is not None
    (installed,) = wheel.submodule_search_locations or ()
    (library,) = Path(installed).glob("capi/libonnxruntime.so.*")

    def make(folder: Path) -> None:
        folder.mkdir()
        for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
            (folder / name).symlink_to(library)

    folder = built("onnxruntime", make)
    return [folder / "libonnxruntime.so", f"-Wl,-rpath,{folder}"]


@pytest.fixture(scope="module")
def build(built: Once, onnxruntime: list[Any]) -> Path:
    """The folder of everything that CMake builds."""
    for program in ("cmake", "c++"):
        if shutil.which(program) is None:
            pytest.skip(f"C++: not run (no {program})")
    headers, json_headers = include_of("onnxruntime_c_api.h"), include_of("nlohmann/json.hpp")

    def make(folder: Path) -> None:
        run(
            *("cmake", "-S", CPP, "-B", folder),
            *("-DMRCFA_TESTS=ON", "-DCMAKE_BUILD_TYPE=None"),
            f"-DCMAKE_CXX_FLAGS={' '.join(OPTIMIZED)}",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={';'.join(CACHE)}",
            f"-DMRCFA_SANITIZE={SANITIZE}",
            f"-DMRCFA_GSTREAMER={'OFF' if missing() else 'ON'}",
            f"-DONNXRuntime_INCLUDE_DIR={headers}",
            f"-DONNXRuntime_LIBRARY={onnxruntime[0]}",
            f"-Dnlohmann_json_ROOT={json_headers.parent}",
        )
        run("cmake", "--build", folder, "-j2")

    return built("cpp", make)


@pytest.fixture(scope="module")
def segment(build: Path) -> Segment:
    return runner_of(build / "mrcfa-segment")


@pytest.fixture(scope="module")
def gst(build: Path, built: Once) -> Gst:
    """GStreamer's programs with the element."""
    if what := missing():
        pytest.skip(f"GStreamer: not run ({what})")
    return Gst(build, built("gst-plugins", Gst.prepare))


@pytest.fixture(scope="module")
def fake_library(build: Path, onnxruntime: list[Any], built: Once) -> list[Any]:
    """The library with the TensorRT backend on a fake GPU, as words for the linker."""
    return [
        *_fakes("fake", FAKE, built),
        *library_objects(build, *ONNXRUNTIME_SOURCES),
        *onnxruntime,
    ]


@pytest.fixture(scope="module")
def fake_gpu(build: Path, fake_library: list[Any], built: Once) -> Segment:
    """mrcfa-segment with that library."""
    return runner_of(built("segment", lambda path: compiled(path, tool(build), *fake_library)))


@pytest.fixture(scope="module")
def fake_rtx(build: Path, onnxruntime: list[Any], built: Once) -> Segment:
    """mrcfa-segment on a fake GPU with TensorRT-RTX."""
    words = [tool(build), *library_objects(build, *ONNXRUNTIME_SOURCES), *onnxruntime]

    def make(path: Path) -> None:
        compiled(path, *_fakes("fake-rtx", FAKE_RTX, built), *words)

    return runner_of(built("segment-rtx", make))


def _fakes(name: str, words: tuple[Any, ...], built: Once) -> list[Path]:
    """The sources that see TensorRT, compiled for one of the fake ones."""
    headers = ("-isystem", include_of("onnxruntime_cxx_api.h"))

    def make(folder: Path) -> None:
        folder.mkdir()
        for source in (*TENSORRT_SOURCES, FAKE_DRIVER):
            options = (*headers, *words, "-DMRCFA_ONNXRUNTIME")
            compiled_object(folder / f"{source.stem}.o", source, *options)

    return list(built(name, make).glob("*.o"))


@pytest.fixture(scope="session")
def pythons_masks() -> Callable[[Path, str, np.ndarray], np.ndarray]:
    """`pythons_masks(bundle, "fp16", frames)`, with a reset; each is computed once."""
    made: dict[tuple[Path, str, int], np.ndarray] = {}

    def masks(path: Path, precision: str, frames: np.ndarray) -> np.ndarray:
        key = (path, precision, len(frames))
        if key not in made:
            stream = Stream(path, "onnxruntime:cpu", precision=precision, threads=2)
            parts = [[stream(frame) for frame in frames[:RESET]]]
            stream.reset()
            parts.append([stream(frame) for frame in frames[RESET:]])
            made[key] = np.stack([mask for part in parts for mask in part])
        return made[key]

    return masks


@pytest.fixture
def copy(bundle: Callable[..., Path], tmp_path: Path) -> Path:
    """A bundle that a test may damage with `write`."""
    return linked(bundle("b0"), tmp_path / "copy")


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """`tiny(size=(64, 64))`: a bundle for that size with a decoder that only selects tokens."""
    return partial(write_tiny, tmp_path / "tiny")
