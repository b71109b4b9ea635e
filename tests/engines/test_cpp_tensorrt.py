"""The TensorRT backend of the C++ library, on a GPU made of the CPU.

NVIDIA's own headers and libraries are used where they are: TENSORRT_INCLUDE names folders of
TensorRT's headers.
"""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import (
    CPP,
    FAKE,
    FRAMES,
    RESET,
    TENSORRT_SOURCES,
    WARNINGS,
    compiled,
    library_objects,
    linked,
    masks_in,
    run,
    tool,
    with_engines,
)
from naming import names

from mrcfa.machine import hardware

TENSORRT_INCLUDES = [
    folder for folder in os.environ.get("TENSORRT_INCLUDE", "").split(os.pathsep) if folder
]
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


def test_the_tensorrt_backend_swaps_its_state_and_replays_its_graphs(
    fake_gpu, bundle, copy, clip, pythons_masks
):
    frames = clip(FRAMES, 96, 160)
    done = fake_gpu(with_engines(copy), "--reset-every", RESET, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))


@pytest.mark.parametrize(
    "method", ["segformer", pytest.param("feature-pyramid", marks=pytest.mark.thorough)]
)
def test_the_tensorrt_backend_runs_a_baseline_with_the_state_that_it_has(
    method, fake_gpu, baseline, tmp_path, clip, pythons_masks
):
    path, frames = baseline(method), clip(FRAMES, 64, 96)
    engines = with_engines(linked(path, tmp_path / "copy"))
    done = fake_gpu(engines, "--reset-every", RESET, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, "fp16", frames))


@pytest.mark.parametrize("failing", ["", "begin", "end", "empty", "instantiate"])
def test_the_tensorrt_backend_works_without_graphs_and_its_name_says_if_it_must(
    failing, fake_gpu, bundle, copy, clip, pythons_masks
):
    frames, path = clip(6, 96, 160), with_engines(copy)
    words = [] if failing else ["--no-graphs"]
    done = fake_gpu(path, *words, frames=frames, FAKE_GPU_NO_GRAPHS=failing)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))
    shown = fake_gpu(path, *words, "--info", FAKE_GPU_NO_GRAPHS=failing).stdout.decode()
    assert "tensorrt (tensorrt fp16 sm75, Fake RTX, without CUDA graphs)" in shown
    assert (b"CUDA graphs" in done.stderr) is bool(failing)


def test_the_tensorrt_backend_gives_masks_of_a_bundle_with_logits(
    fake_gpu, bundle, tmp_path, clip, pythons_masks
):
    path, frames = bundle("b1", output="logits"), clip(4, 96, 160)
    done = fake_gpu(with_engines(linked(path, tmp_path / "logits")), frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, "fp16", frames))


@pytest.mark.parametrize(
    ("changes", "environment", "things"),
    [
        ({}, {"FAKE_GPU_ABSENT": "1"}, ("no CUDA-capable device", "onnxruntime:cpu")),
        ({}, {"FAKE_GPU_OLD_DRIVER": "1"}, ("CUDA 13.0", "driver", "12.4")),
        (
            {},
            {"FAKE_TENSORRT_NULL": "1"},
            ("tensorrt 10.3.0", "CUDA initialization failure with error: 35", "driver", "13.0"),
        ),
        ({"flavour": "rtx"}, {}, ("rtx fp16 sm75", "TensorRT-RTX", "-DMRCFA_TENSORRT=rtx")),
        (
            {"plugin": "mrcfa::SelectTokens 1"},
            {},
            ("tensorrt fp16 sm75", "mrcfa::SelectTokens 1", "engines/plugin", "--plugin-library"),
        ),
        (
            {"encoder": "weights.safetensors"},
            {},
            ("Fake RTX", "COPY/weights.safetensors", "10.3.0", "the plan's version tag is wrong"),
        ),
        ({"encoder": "decoder.onnx"}, {}, ("COPY/decoder.onnx", "image is missing")),
    ],
)
def test_an_engine_that_cannot_run_here_is_told_with_both_sides(
    changes, environment, things, fake_gpu, copy
):
    """Those that Python refuses in the same sentence are in test_cpp_manifest.py."""
    done = fake_gpu(with_engines(copy, **changes), "--backend", "tensorrt", **environment)
    assert done.returncode == 2
    named = (thing.replace("COPY", str(copy)) for thing in things)
    assert names(done.stderr.decode(), *named)


def test_other_versions_of_the_same_major_load_a_version_compatible_engine(fake_gpu, copy):
    path = with_engines(copy, tensorrt="10.9.0", version_compatible=True)
    assert b"tensorrt (tensorrt fp16 sm75" in fake_gpu(path, "--info").stdout


def test_a_plugin_library_is_loaded_for_engines_that_need_it(fake_gpu, copy, tmp_path):
    library = tmp_path / "libmrcfa_plugin.so"
    library.touch()
    path = with_engines(copy, plugin="mrcfa::SelectTokens 1")
    done = fake_gpu(path, "--info", "--plugin-library", library)
    assert "tensorrt (tensorrt fp16 sm75, Fake RTX)" in done.stdout.decode()


def test_siblings_device_memory_and_a_callers_stream_work_on_a_gpu(fake_library, copy, tmp_path):
    program = compiled(tmp_path / "api", *FAKE, CPP / "test/api.cpp", *fake_library)
    run(program, with_engines(copy))


@pytest.mark.thorough
def test_every_slot_of_several_streams_is_as_if_it_were_alone(fake_library, bundle, tmp_path):
    program = compiled(tmp_path / "streams", *FAKE, CPP / "test/streams.cpp", *fake_library)
    several = with_engines(linked(bundle("b0", streams=3), tmp_path / "several"))
    run(program, several, bundle("b0"), "tensorrt")


def tensorrt_words(include: str | None, flavour: str = "tensorrt") -> list[Any]:
    """Compiler words for NVIDIA's headers, which are no system's package."""
    if include is None:
        pytest.skip("not run: TENSORRT_INCLUDE is not set")
    if not (CUDA / "include/cuda_runtime_api.h").is_file():
        pytest.skip("not run: no CUDA headers")
    system = ("-isystem", include, "-isystem", CUDA / "include")
    return ["-I", CPP / "include", "-I", CPP / "src", *system, f'-DMRCFA_TENSORRT="{flavour}"']


@pytest.mark.parametrize("include", TENSORRT_INCLUDES or [None])
def test_the_tensorrt_backend_compiles_without_a_warning(include):
    run("c++", *WARNINGS, "-fsyntax-only", *tensorrt_words(include), *TENSORRT_SOURCES)


def test_without_a_gpu_the_real_libraries_end_in_one_sentence(build, copy, tmp_path):
    """NVIDIA's own TensorRT-RTX and CUDA, linked and started."""
    if hardware.gpus():
        pytest.skip("not run: there is a GPU")
    words = tensorrt_words(TENSORRT_INCLUDES[-1] if TENSORRT_INCLUDES else None, "rtx")
    wheel, cudart = find_spec("tensorrt_rtx_libs"), CUDA / "lib64/libcudart.so"
    if wheel is None or not cudart.exists():
        pytest.skip("not run: no TensorRT-RTX or no CUDA runtime to link")
    (folder,) = wheel.submodule_search_locations or ()
    (library,) = Path(folder).glob("libtensorrt_rtx.so.*")
    program = compiled(
        tmp_path / "segment",
        *(*words, *TENSORRT_SOURCES, *library_objects(build, "driver"), tool(build)),
        *(library, cudart, f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{cudart.parent}"),
    )
    path = with_engines(copy, flavour="rtx")
    done = subprocess.run([program, path, "--backend", "tensorrt"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert names(done.stderr, "GPU", "onnxruntime:cpu")
