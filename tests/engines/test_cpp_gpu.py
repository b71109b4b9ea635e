"""A first run on a GPU in C++, on the doubles of CUDA, TensorRT and its providers."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cpp_library import (
    CPP,
    FAKE,
    ONNXRUNTIME_SOURCES,
    Once,
    Segment,
    compiled,
    include_of,
    library_objects,
    run,
    runner_of,
    tool,
    with_engines,
)
from naming import names

SKIPPED = {
    "another SM": (
        {"compute_capabilities": [86]},
        {},
        ("tensorrt fp16 sm86", "sm_86", "Fake RTX", "sm_75"),
    ),
    "an old driver": (
        {},
        {"FAKE_GPU_OLD_DRIVER": "1"},
        ("CUDA 13.0", "driver", "12.4"),
    ),
    "a missing plugin": (
        {"plugin": "mrcfa::SelectTokens 1"},
        {},
        ("tensorrt fp16 sm75", "mrcfa::SelectTokens 1"),
    ),
    "a GPU that others use alone": (
        {},
        {"FAKE_GPU_BUSY": "1"},
        ("GPU 0", "cuDevicePrimaryCtxRetain", "cudaErrorDevicesUnavailable"),
    ),
    "other tensors": (
        {"encoder": "decoder.onnx"},
        {},
        ("decoder.onnx", "image", "uint8 [1, 96, 160, 3]"),
    ),
    "a runtime that is null": (
        {},
        {"FAKE_TENSORRT_NULL": "1"},
        ("tensorrt 10.3.0", "CUDA"),
    ),
}
INSTEAD = "onnxruntime (CPU, fp32)"
"""The backend that runs where TensorRT cannot."""


@pytest.mark.parametrize("why", SKIPPED)
def test_what_is_skipped_on_a_gpu_is_told_and_strict_refuses_it(why, fake_gpu, copy):
    changes, environment, things = SKIPPED[why]
    path = with_engines(copy, **changes)
    done = fake_gpu(path, "--info", **environment)
    assert (done.returncode, b"onnxruntime (CPU, fp32)" in done.stdout) == (0, True)
    assert names(done.stderr.decode(), INSTEAD, *things)
    done = fake_gpu(path, "--info", "--strict", **environment)
    assert (done.returncode, done.stdout) == (2, b"")
    assert names(done.stderr.decode(), INSTEAD, path, *things)


def test_an_engine_that_does_not_load_makes_room_for_the_next(fake_gpu, copy):
    """The encoder of the FP16 engine has the tensors of FP32."""
    done = fake_gpu(with_engines(copy, encoder="encoder.onnx"), "--info", "--strict")
    assert "tensorrt (tensorrt fp32 sm75, Fake RTX)" in done.stdout.decode()
    things = ("tensorrt fp32 sm75", "encoder.onnx", "base", "float16 [1, 124, 12, 20]")
    assert names(done.stderr.decode(), *things)


def test_without_a_gpu_nothing_is_skipped_and_nothing_said(fake_gpu, copy):
    for words in ((), ("--strict",)):
        done = fake_gpu(with_engines(copy), "--info", *words, FAKE_GPU_ABSENT="1")
        assert (done.returncode, done.stderr) == (0, b"")
        assert INSTEAD.encode() in done.stdout


@pytest.fixture(scope="module")
def driver(built: Once) -> dict[str, str]:
    """The environment of a machine whose driver has two GPUs, and a context on the second."""

    def make(folder: Path) -> None:
        folder.mkdir()
        library = folder / "libcuda.so.1"
        run("c++", "-shared", "-fPIC", "-o", library, CPP / "test/fake_gpu/libcuda.cpp")

    return {"LD_LIBRARY_PATH": str(built("driver", make))}


def test_a_build_without_tensorrt_says_so_where_a_gpu_is_seen(segment, copy, driver):
    done = segment(copy, "--info", **driver)
    assert done.returncode == 0
    assert names(done.stderr.decode(), INSTEAD, f"mrcfa build {copy}")
    done = segment(with_engines(copy), "--info", **driver)
    assert done.returncode == 0
    assert names(done.stderr.decode(), INSTEAD, "-DMRCFA_TENSORRT=tensorrt")
    assert segment(copy, "--info", "--strict", **driver).returncode == 2


@pytest.mark.parametrize(
    ("targets", "chosen"),
    [
        (([75], [75, 86, 89]), "sm75"),
        (([75, 86, 89], [75]), "sm75"),
        (([75, 86], [75, 89], [86]), "sm75+sm89"),
    ],
)
def test_of_engines_that_fit_the_most_specific_is_taken_and_then_the_newest(
    targets, chosen, fake_gpu, copy
):
    shown = fake_gpu(with_engines(copy, *targets), "--info").stdout.decode()
    assert f"tensorrt (tensorrt fp16 {chosen}, Fake RTX)" in shown


def test_a_gpu_that_is_not_there_is_named(fake_gpu, copy):
    done = fake_gpu(with_engines(copy), "--device", 2, FAKE_GPU_COUNT="2")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert names(done.stderr.decode(), "GPU 2", 1)


@pytest.fixture(scope="module")
def scenario(fake_library: list[Any], built: Once) -> Path:
    """`gpu BUNDLE SCENARIO`"""
    headers = ("-isystem", include_of("onnxruntime_cxx_api.h"))
    return built(
        "gpu", lambda path: compiled(path, *FAKE, *headers, CPP / "test/gpu.cpp", *fake_library)
    )


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("second-gpu", {"FAKE_GPU_COUNT": "2"}),
        ("callers-context", {"FAKE_GPU_COUNT": "2"}),
        ("other-threads", {}),
        ("context-gone", {"ASAN_OPTIONS": "detect_leaks=0"}),
        ("gpu-lost", {"FAKE_GPU_LOST_AFTER": "2"}),
        ("memory-full", {"FAKE_GPU_LOST_AFTER": "0", "FAKE_GPU_ERROR": "2"}),
        ("call-failed", {"FAKE_GPU_LOST_AFTER": "0", "FAKE_GPU_ERROR": "1"}),
        ("pinned", {}),
        ("scratch-and-ranges", {}),
        ("contexts", {}),
        ("contexts", {"FAKE_GPU_NO_GRAPHS": "empty"}),
        ("recording", {}),
        ("frame-elsewhere", {"FAKE_GPU_COUNT": "2"}),
        ("in-flight", {}),
    ],
)
def test_a_stream_shares_its_process_with_others(name, environment, scenario, copy):
    run(scenario, with_engines(copy), name, env={**os.environ, **environment})


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_what_an_error_leaves_behind_is_freed_in_its_context(part, fake_gpu, copy):
    path = with_engines(copy, **{part: "weights.safetensors"})
    done = fake_gpu(path, "--backend", "tensorrt", "--device", "1", FAKE_GPU_COUNT="2")
    assert done.returncode == 2, done.stderr.decode()
    assert names(done.stderr.decode(), path / "weights.safetensors", "Fake RTX")


@pytest.mark.thorough
def test_tensorrt_rtx_is_asked_whether_it_can_be_captured(fake_rtx, copy):
    path = with_engines(copy, flavour="rtx")
    shown = fake_rtx(path, "--info", FAKE_GPU_NO_GRAPHS="capturable").stdout.decode()
    assert "(rtx fp16 sm75, Fake RTX, without CUDA graphs)" in shown


@pytest.fixture(scope="module")
def cuda_provider(build: Path, onnxruntime: list[Any], built: Once) -> Segment:
    """mrcfa-segment with an ONNX Runtime that has a CUDA provider."""
    source = CPP / "test/fake_gpu/onnxruntime_cuda.cpp"
    headers = ("-isystem", include_of("onnxruntime_c_api.h"))
    parts = [tool(build), *library_objects(build, "opened", "driver", *ONNXRUNTIME_SOURCES)]
    real = ("-Wl,--no-as-needed", *onnxruntime, "-ldl")  # only the double refers to it, by name
    return runner_of(
        built("segment-cuda", lambda path: compiled(path, *headers, source, *parts, *real))
    )


@pytest.fixture
def told(cuda_provider: Segment, bundle: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    """`told("works", "--info")`: what the tool did, and what it told ONNX Runtime."""

    def run_and_read(how: str, *words: Any, **environment: str) -> tuple[Any, list[str]]:
        file = tmp_path / "told"
        file.write_text("")
        settings = {"FAKE_ORT_CUDA": how, "FAKE_ORT_TOLD": str(file), **environment}
        done = cuda_provider(bundle("b0"), *words, **settings)
        return done, file.read_text().splitlines()

    return run_and_read


def test_onnxruntime_on_cuda_has_no_tf32_and_no_node_on_the_cpu(told):
    done, settings = told("works", "--info", "--device", "1")
    assert (done.stderr, b"onnxruntime (CUDA, fp16)" in done.stdout) == (b"", True)
    assert {"device_id=1", "use_tf32=0", "session.disable_cpu_ep_fallback=1"} <= set(settings)
    _, settings = told("works", "--info", "--backend", "onnxruntime:cpu")
    assert "session.disable_cpu_ep_fallback=1" not in settings


def test_onnxruntime_on_cuda_takes_the_gpu_of_the_current_context(told, driver):
    _, settings = told("works", "--info", **driver)
    assert "device_id=1" in settings
    done, _ = told("works", "--info", "--device", "7", **driver)
    assert done.returncode == 2
    assert names(done.stderr.decode(), "GPU 7", "GPU 1")


def test_nodes_that_cuda_leaves_to_the_cpu_are_told_and_strict_refuses_them(told):
    """By name where the headers, unlike those of Debian, are of ONNX Runtime 1.24 or later."""
    header = (include_of("onnxruntime_c_api.h") / "onnxruntime_c_api.h").read_text()
    (version,) = re.findall(r"#define ORT_API_VERSION (\d+)", header)
    nodes = r"\b\d+ nodes \(.+\)" if int(version) >= 24 else r"\bnodes\b"
    done, _ = told("partly", "--info")
    assert b"onnxruntime (CUDA, fp16)" in done.stdout, done.stderr.decode()
    strict, _ = told("partly", "--info", "--strict")
    assert strict.returncode == 2
    lines = [*done.stderr.decode().splitlines(), *strict.stderr.decode().splitlines()]
    for line, file in zip(lines, ("encoder", "decoder", "encoder"), strict=True):
        assert names(line, "CPU", f"{file}.fp16.onnx"), line
        assert re.search(nodes, line), line


@pytest.mark.parametrize(
    ("how", "version", "things"),
    [
        ("broken", "", ("libonnxruntime_providers_cuda.so",)),
        ("works", "1.20.1", ("ONNX Runtime 1.20.1", "1.21")),
    ],
)
def test_cuda_that_does_not_load_falls_to_onnxruntimes_cpu_and_is_told(how, version, things, told):
    done, _ = told(how, "--info", FAKE_ORT_VERSION=version)
    assert INSTEAD.encode() in done.stdout, done.stderr.decode()
    assert names(done.stderr.decode(), "CUDAExecutionProvider", *things, "CPU")
    for words in (("--strict",), ("--backend", "onnxruntime:cuda")):
        done, _ = told(how, "--info", *words, FAKE_ORT_VERSION=version)
        assert (done.returncode, done.stdout) == (2, b"")
        assert names(done.stderr.decode(), "CUDAExecutionProvider", *things)
