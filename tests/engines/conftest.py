"""The C++ library, built once for all tests, the masks it must give, and bundles to try it on."""

import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import CPP, RESET, SANITIZERS, Once, Segment, include_of, linked, run, runner_of
from tiny_bundle import write_tiny

from mrcfa import Stream


@pytest.fixture(scope="module")
def onnxruntime(once: Once) -> list[Any]:
    """The wheel's library as words for the linker, under the names that it and programs want."""
    wheel = find_spec("onnxruntime")
    assert wheel is not None
    (installed,) = wheel.submodule_search_locations or ()
    (library,) = Path(installed).glob("capi/libonnxruntime.so.*")

    def make(folder: Path) -> None:
        folder.mkdir()
        for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
            (folder / name).symlink_to(library)

    folder = once("onnxruntime", make)
    return [folder / "libonnxruntime.so", f"-Wl,-rpath,{folder}"]


@pytest.fixture(scope="module")
def build(once: Once, onnxruntime: list[Any]) -> Path:
    """The folder of everything that CMake builds."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"C++: not run (no {tool})")
    headers, json_headers = include_of("onnxruntime_c_api.h"), include_of("nlohmann/json.hpp")

    def make(folder: Path) -> None:
        run(
            *("cmake", "-S", CPP, "-B", folder, "-DMRCFA_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None"),
            f"-DCMAKE_CXX_FLAGS={' '.join(SANITIZERS)}",
            f"-DONNXRuntime_INCLUDE_DIR={headers}",
            f"-DONNXRuntime_LIBRARY={onnxruntime[0]}",
            f"-Dnlohmann_json_ROOT={json_headers.parent}",
        )
        run("cmake", "--build", folder, "-j2")

    return once("cpp", make)


@pytest.fixture(scope="module")
def segment(build: Path) -> Segment:
    return runner_of(build / "mrcfa-segment")


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
