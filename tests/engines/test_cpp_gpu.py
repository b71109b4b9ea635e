"""What a first run on a GPU meets in C++, on the doubles of CUDA, TensorRT and its providers."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import (
    CPP,
    FAKE,
    Once,
    Segment,
    compiled,
    include_of,
    library_objects,
    masks_in,
    run,
    runner_of,
    tool,
    with_engines,
)

SKIPPED = {
    "another SM": (
        {"compute_capabilities": [86]},
        {},
        "the engine tensorrt fp16 sm86 was built for sm_86 and Fake RTX is sm_75",
    ),
    "an old driver": (
        {},
        {"FAKE_GPU_OLD_DRIVER": "1"},
        "this build of mrcfa is for CUDA 13.0 and NVIDIA's driver knows CUDA up to 12.4",
    ),
    "a missing plugin": (
        {"plugin": "mrcfa::SelectTokens 1"},
        {},
        "the engine tensorrt fp16 sm75 needs a plugin: the plugin mrcfa::SelectTokens 1 is not",
    ),
    "a runtime that is null": (
        {},
        {"FAKE_TENSORRT_NULL": "1"},
        "tensorrt 10.3.0 does not start: CUDA in",
    ),
}
INSTEAD = "mrcfa: onnxruntime (CPU, fp32) runs instead of TensorRT: "


@pytest.mark.parametrize("why", SKIPPED)
def test_what_is_skipped_on_a_gpu_is_told_and_strict_refuses_it(why, fake_gpu, copy):
    changes, environment, sentence = SKIPPED[why]
    path = with_engines(copy, **changes)
    done = fake_gpu(path, "--info", **environment)
    assert (done.returncode, b"onnxruntime (CPU, fp32)" in done.stdout) == (0, True)
    assert done.stderr.decode().startswith(INSTEAD + sentence)
    done = fake_gpu(path, "--info", "--strict", **environment)
    assert (done.returncode, done.stdout) == (2, b"")
    only = f"mrcfa-segment: only onnxruntime (CPU, fp32) can run {path} here: "
    assert done.stderr.decode().startswith(only + sentence)


def test_without_a_gpu_nothing_is_skipped_and_nothing_said(fake_gpu, copy):
    for words in ((), ("--strict",)):
        done = fake_gpu(with_engines(copy), "--info", *words, FAKE_GPU_ABSENT="1")
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"runs on onnxruntime (CPU, fp32)" in done.stdout


def test_a_build_without_tensorrt_says_so_where_a_gpu_is_seen(segment, copy, tmp_path):
    run(
        "c++",
        "-shared",
        "-fPIC",
        "-o",
        tmp_path / "libcuda.so.1",
        CPP / "test/fake_gpu/libcuda.cpp",
    )
    driver = {"LD_LIBRARY_PATH": str(tmp_path)}
    done = segment(copy, "--info", **driver)
    engine = f"{copy} has no engine yet; build one with: mrcfa build {copy}\n"
    assert (done.returncode, done.stderr.decode()) == (0, INSTEAD + engine)
    done = segment(with_engines(copy), "--info", **driver)
    assert (done.returncode, done.stderr.decode()) == (
        0,
        INSTEAD + "this build of mrcfa has no TensorRT; configure it with "
        "-DMRCFA_TENSORRT=tensorrt\n",
    )
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
    assert f"runs on tensorrt (tensorrt fp16 {chosen}, Fake RTX)\n" in shown


@pytest.mark.parametrize(
    ("device", "sentence"), [("2", "there is no GPU 2; the last one here is 1\n")]
)
def test_a_gpu_that_is_not_there_is_named(device, sentence, fake_gpu, copy):
    done = fake_gpu(with_engines(copy), "--device", device, FAKE_GPU_COUNT="2")
    assert (done.returncode, done.stderr.decode()) == (2, f"mrcfa-segment: {sentence}")


@pytest.fixture(scope="module")
def scenario(fake_library: list[Any], once: Once) -> Path:
    """`gpu BUNDLE SCENARIO`"""
    headers = ("-isystem", include_of("onnxruntime_cxx_api.h"))
    return once(
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
        ("pinned", {}),
        ("scratch-and-ranges", {}),
    ],
)
def test_a_stream_shares_its_process_with_others(name, environment, scenario, copy):
    run(scenario, with_engines(copy), name, env={**os.environ, **environment})


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_what_an_error_leaves_behind_is_freed_in_its_context(part, fake_gpu, copy):
    path = with_engines(copy, **{part: "weights.safetensors"})
    done = fake_gpu(path, "--backend", "tensorrt", "--device", "1", FAKE_GPU_COUNT="2")
    assert done.returncode == 2, done.stderr.decode()
    assert "cannot load" in done.stderr.decode()


class Rtx:
    """A bundle on the fake TensorRT-RTX, with a cache folder and a count of compilations."""

    def __init__(self, segment: Segment, bundle: Path, folder: Path) -> None:
        self._segment, self._bundle, self._folder = segment, bundle, folder
        self.cache = folder / "cache"

    def __call__(self, *words: Any, **environment: str) -> tuple[Any, int]:
        """What the tool did, and how many engines were compiled for that."""
        told = self._folder / "compiled"
        told.write_text("")
        places = {"XDG_CACHE_HOME": str(self.cache), "FAKE_RTX_COMPILED": str(told)}
        done = self._segment(self._bundle, *words, **{**places, **environment})
        assert done.returncode == 0, done.stderr.decode()
        return done, len(told.read_text().splitlines())

    @property
    def files(self) -> list[Path]:
        return sorted((self.cache / "mrcfa/tensorrt-rtx").iterdir())


@pytest.fixture
def rtx(fake_rtx: Segment, copy: Path, tmp_path: Path) -> Rtx:
    return Rtx(fake_rtx, with_engines(copy, flavour="rtx"), tmp_path)


def test_tensorrt_rtx_compiles_once_for_each_engine_and_gpu(rtx, clip, bundle, pythons_masks):
    frames = clip(6, 96, 160)
    for compilations in (2, 0):
        done, count = rtx(frames=frames)
        assert (count, done.stderr) == (compilations, b"")
        masks = pythons_masks(bundle("b0"), "fp16", frames)
        assert np.array_equal(masks_in(done, frames), masks)
    assert rtx("--info", "--precision", "fp32")[1] == 2
    assert len(rtx.files) == 4
    assert all(file.name.endswith("-fake-rtx-sm75-10.3.0.cache") for file in rtx.files)


FOREIGN = b"fake-rtx-sm89 1 end"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is damaged"),
        (b"\0" * 4096, "is damaged"),
        (FOREIGN, "is damaged"),
        (
            sha256(FOREIGN).hexdigest().encode() + FOREIGN,
            "is not of this GPU, driver and version: it gives no reason",
        ),
    ],
)
def test_a_damaged_or_foreign_cache_is_told_and_made_anew(content, why, rtx):
    rtx("--info")
    first = rtx.files[0]
    first.write_bytes(content)
    done, count = rtx("--info")
    told = f"mrcfa: the runtime cache {first} {why}; TensorRT-RTX compiles this engine anew\n"
    assert (count, done.stderr.decode()) == (1, told)
    assert rtx("--info")[1] == 0


def test_a_cache_that_cannot_be_written_is_told_and_the_work_goes_on(rtx):
    rtx.cache.write_text("a file where the folder should be")
    for _ in range(2):
        done, count = rtx("--info")
        assert count == 2
        said = done.stderr.decode()
        assert said.count("mrcfa: cannot write ") == 2
        assert said.count(", so TensorRT-RTX compiles this engine again at every start\n") == 2


def test_two_processes_may_fill_one_cache(rtx):
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: rtx("--info")[0], range(2)))
    assert [done.stderr for done in both] == [b"", b""]
    assert len(rtx.files) == 2, "nothing half written is left"
    assert rtx("--info")[1] == 0


def test_tensorrt_rtx_is_asked_whether_it_can_be_captured(rtx):
    shown = rtx("--info", FAKE_GPU_NO_GRAPHS="capturable")[0].stdout.decode()
    assert "(rtx fp16 sm75, Fake RTX, no CUDA graphs)" in shown


@pytest.fixture(scope="module")
def cuda_provider(build: Path, onnxruntime: list[Any], once: Once) -> Segment:
    """mrcfa-segment with an ONNX Runtime that has a CUDA provider."""
    source = CPP / "test/fake_gpu/onnxruntime_cuda.cpp"
    headers = ("-isystem", include_of("onnxruntime_c_api.h"))
    parts = [tool(build), *library_objects(build, "onnxruntime", "stream"), *onnxruntime]
    return runner_of(
        once("segment-cuda", lambda path: compiled(path, *headers, source, *parts, "-ldl"))
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
    assert (done.stderr, b"runs on onnxruntime (CUDA, fp16)" in done.stdout) == (b"", True)
    assert {"device_id=1", "use_tf32=0", "session.disable_cpu_ep_fallback=1"} <= set(settings)
    _, settings = told("works", "--info", "--backend", "onnxruntime:cpu")
    assert "session.disable_cpu_ep_fallback=1" not in settings


def test_nodes_that_cuda_leaves_to_the_cpu_are_told_and_strict_refuses_them(told):
    done, _ = told("partly", "--info")
    assert b"runs on onnxruntime (CUDA, fp16)" in done.stdout, done.stderr.decode()
    said = done.stderr.decode().splitlines()
    for line, file in zip(said, ("encoder", "decoder"), strict=True):
        nodes = f"mrcfa: not the GPU but the CPU runs some nodes of {file}.fp16.onnx: "
        assert line.startswith(nodes), line
    done, _ = told("partly", "--info", "--strict")
    assert done.returncode == 2
    assert "fallback to CPU EP has been explicitly disabled" in done.stderr.decode()


@pytest.mark.parametrize(
    ("how", "version", "sentence"),
    [
        ("broken", "", "libonnxruntime_providers_cuda.so does not load"),
        ("works", "1.20.1", "ONNX Runtime 1.20.1 is too old for CUDA; install 1.21 or later"),
    ],
)
def test_cuda_that_does_not_load_falls_to_onnxruntimes_cpu_and_is_told(
    how, version, sentence, told
):
    done, _ = told(how, "--info", FAKE_ORT_VERSION=version)
    assert b"runs on onnxruntime (CPU, fp32)" in done.stdout, done.stderr.decode()
    cannot = f"ONNX Runtime cannot use its CUDAExecutionProvider here: {sentence}; choose "
    said = done.stderr.decode()
    assert said.startswith(f"mrcfa: {cannot}")
    assert said.endswith("; ONNX Runtime goes on with the CPU\n")
    for words in (("--strict",), ("--backend", "onnxruntime:cuda")):
        done, _ = told(how, "--info", *words, FAKE_ORT_VERSION=version)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode().startswith(f"mrcfa-segment: {cannot}")
