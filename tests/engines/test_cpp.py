"""The C++ library against Python's runtime, through what a user gets.

That is mrcfa-segment, the installed package and the public header. TENSORRT_INCLUDE names folders
of TensorRT's headers.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_library import (
    CPP,
    SANITIZERS,
    WARNINGS,
    Once,
    Segment,
    compiled,
    edit,
    include_of,
    linked,
    run,
    runner_of,
)

from mrcfa import Stream, machine
from mrcfa.bundle import MANIFEST

TENSORRT_INCLUDES = [
    folder for folder in os.environ.get("TENSORRT_INCLUDE", "").split(os.pathsep) if folder
]
FRAMES, RESET = 40, 25


def objects(build: Path) -> list[Path]:
    """What the library is made of without its backends."""
    folder = build / "CMakeFiles"
    return [*folder.glob("mrcfa_bundle.dir/src/*.o"), folder / "mrcfa.dir/src/logits.cpp.o"]


def tool(build: Path) -> Path:
    return build / "CMakeFiles/mrcfa-segment.dir/tool/segment.cpp.o"


TENSORRT_SOURCES = [CPP / f"src/{name}.cpp" for name in ("stream", "tensorrt", "fitting")]


FAKE = ("-I", CPP / "test/fake_gpu", '-DMRCFA_TENSORRT="tensorrt"')
"""Compiler words for a TensorRT and a CUDA that are made of the CPU."""


@pytest.fixture(scope="module")
def fake_library(build: Path, onnxruntime: list[Any], once: Once) -> list[Any]:
    """The library with the TensorRT backend on that fake GPU, as words for the linker."""
    headers = ("-I", CPP / "src", "-isystem", include_of("onnxruntime_cxx_api.h"))

    def make(folder: Path) -> None:
        folder.mkdir()
        for source in TENSORRT_SOURCES:
            compiled(folder / f"{source.stem}.o", "-c", *headers, *FAKE, source)

    folder = once("fake", make)
    return [*folder.glob("*.o"), *objects(build), *onnxruntime]


@pytest.fixture(scope="module")
def fake_gpu(build: Path, fake_library: list[Any], once: Once) -> Segment:
    """mrcfa-segment with that library."""
    return runner_of(once("segment", lambda path: compiled(path, tool(build), *fake_library)))


@pytest.fixture(scope="module")
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


def masks_in(done: subprocess.CompletedProcess[bytes], frames: np.ndarray) -> np.ndarray:
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.uint8).reshape(frames.shape[:3])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_masks_are_pythons_bit_by_bit_over_40_frames_and_a_reset(
    precision, segment, bundle, clip, pythons_masks
):
    path, frames = bundle("b0"), clip(FRAMES, 96, 160)
    options = ("--raw", "160x96", "--precision", precision, "--threads", 2, "--reset-every", RESET)
    masks = masks_in(segment(path, *options, frames=frames), frames)
    assert len(np.unique(masks)) > 5
    assert np.array_equal(masks, pythons_masks(path, precision, frames))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_logits_become_pythons_masks(precision, segment, bundle, clip, pythons_masks):
    path, frames = bundle("b0", output="logits"), clip(4, 96, 160)
    done = segment(path, "--precision", precision, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, precision, frames))


def test_frames_of_a_camera_are_resized_in_the_graphs(segment, tailored, clip, pythons_masks):
    frames = clip(6, 108, 192)
    done = segment(tailored, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(tailored, "fp32", frames))


def with_engines(path: Path, **changes: Any) -> Path:
    """Engines for the fake GPU, which are ONNX files."""
    engine = {
        "flavour": "tensorrt",
        "tensorrt": "10.3.0",
        "compute_capabilities": [75],
        "plugin": None,
        "layers": None,
    }
    files = {
        "fp32": {"encoder": "encoder.onnx", "decoder": "decoder.onnx"},
        "fp16": {"encoder": "encoder.fp16.onnx", "decoder": "decoder.fp16.onnx"},
    }
    engines = [
        {**engine, "precision": precision, **parts, **changes} for precision, parts in files.items()
    ]
    edit(path, engines=engines)
    return path


def test_the_tensorrt_backend_swaps_its_state_and_replays_its_graphs(
    fake_gpu, bundle, copy, clip, pythons_masks
):
    frames = clip(FRAMES, 96, 160)
    done = fake_gpu(with_engines(copy), "--reset-every", RESET, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))


@pytest.mark.parametrize(
    ("words", "environment"), [(["--no-graphs"], {}), ([], {"FAKE_GPU_NO_GRAPHS": "1"})]
)
def test_the_tensorrt_backend_works_without_graphs(
    words, environment, fake_gpu, bundle, copy, clip, pythons_masks
):
    frames = clip(6, 96, 160)
    done = fake_gpu(with_engines(copy), *words, frames=frames, **environment)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))


def test_the_tensorrt_backend_gives_masks_of_a_bundle_with_logits(
    fake_gpu, bundle, tmp_path, clip, pythons_masks
):
    path, frames = bundle("b0", output="logits"), clip(4, 96, 160)
    done = fake_gpu(with_engines(linked(path, tmp_path / "logits")), frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, "fp16", frames))


@pytest.mark.parametrize(
    ("changes", "environment", "sentence"),
    [
        ({}, {"FAKE_GPU_ABSENT": "1"}, "no GPU can be used here: no CUDA-capable device"),
        (
            {"compute_capabilities": [86, 89]},
            {},
            "the engine tensorrt fp16 sm86+sm89 was built for sm_86, sm_89 and Fake RTX is sm_75; "
            "build one for it with: mrcfa build COPY --sm 75",
        ),
        (
            {"tensorrt": "10.13.2"},
            {},
            "the engine tensorrt fp16 sm75 was built with TensorRT 10.13.2 and this machine has "
            "10.3.0; build it again with: mrcfa build COPY, or install 10.13.2",
        ),
        (
            {"flavour": "rtx"},
            {},
            "the engine rtx fp16 sm75 needs TensorRT-RTX and this build of mrcfa has TensorRT; "
            "configure it with -DMRCFA_TENSORRT=rtx",
        ),
        (
            {"plugin": "mrcfa::SelectTokens 1"},
            {},
            "the engine tensorrt fp16 sm75 needs a plugin: the plugin mrcfa::SelectTokens 1 is not "
            "loaded: compile engines/plugin with CMake and name libmrcfa_plugin.so",
        ),
        (
            {"plugin": "mrcfa::SelectTokens 1"},
            {"MRCFA_PLUGIN_LIBRARY": "/nowhere/libmrcfa_plugin.so"},
            "the plugin library /nowhere/libmrcfa_plugin.so does not exist",
        ),
        (
            {"encoder": "weights.safetensors"},
            {},
            "tensorrt 10.3.0 on Fake RTX cannot load COPY/weights.safetensors, built with 10.3.0: "
            "the plan's version tag is wrong",
        ),
        ({"encoder": "decoder.onnx"}, {}, "the graphs have no tensor 'image'"),
        ({"decoder": "decoder.onnx"}, {}, "do not have the tensors that the manifest names"),
    ],
)
def test_an_engine_that_cannot_run_here_is_told_with_both_sides(
    changes, environment, sentence, fake_gpu, copy
):
    done = fake_gpu(with_engines(copy, **changes), "--backend", "tensorrt", **environment)
    assert done.returncode == 2
    assert sentence.replace("COPY", str(copy)) in done.stderr.decode()


def test_other_versions_of_the_same_major_load_a_version_compatible_engine(fake_gpu, copy):
    path = with_engines(copy, tensorrt="10.9.0", version_compatible=True)
    assert b"runs on tensorrt" in fake_gpu(path, "--info").stdout
    assert fake_gpu(with_engines(path, tensorrt="11.1.0", version_compatible=True)).returncode == 2


def test_a_plugin_library_is_loaded_for_engines_that_need_it(fake_gpu, copy, tmp_path):
    library = tmp_path / "libmrcfa_plugin.so"
    library.touch()
    path = with_engines(copy, plugin="mrcfa::SelectTokens 1")
    done = fake_gpu(path, "--info", "--plugin-library", library)
    assert "runs on tensorrt (tensorrt fp16 sm75, Fake RTX)" in done.stdout.decode()


def test_siblings_moves_and_refusals_work_through_the_header(build, bundle, tmp_path):
    library = (build / "libmrcfa.so", f"-Wl,-rpath,{build}")
    run(compiled(tmp_path / "api", CPP / "test/api.cpp", *library), bundle("b0"))


def test_siblings_device_memory_and_a_callers_stream_work_on_a_gpu(fake_library, copy, tmp_path):
    program = compiled(tmp_path / "api", *FAKE, CPP / "test/api.cpp", *fake_library)
    run(program, with_engines(copy))


def test_an_installed_library_is_found_by_cmake_and_by_pkg_config(build, bundle, tmp_path):
    prefix, tree = tmp_path / "prefix", tmp_path / "tree"
    run("cmake", "--install", build, "--prefix", prefix)
    run(
        *("cmake", "-S", CPP / "example", "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DCMAKE_CXX_FLAGS={' '.join(SANITIZERS)}",
    )
    run("cmake", "--build", tree)
    assert "frame 9: " in run(tree / "example", bundle("b0")).stdout
    shown = run(prefix / "bin/mrcfa-segment", bundle("b0"), "--info").stdout
    assert "frames 160x96 (width x height)\nruns on onnxruntime (CPU, fp32)" in shown
    if shutil.which("pkg-config"):
        (folder,) = prefix.glob("lib*/**/pkgconfig")
        found = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
        flags = run("pkg-config", "--cflags", "--libs", "mrcfa", env=found).stdout.split()
        compiled(tree / "plain", CPP / "example/main.cpp", *flags)


def test_a_graph_that_is_no_graph_is_named(segment, copy):
    graphs = json.loads((copy / MANIFEST).read_text())["graphs"]
    graphs["fp32"]["encoder"]["file"] = "weights.safetensors"
    edit(copy, graphs=graphs)
    done = segment(copy)
    assert done.returncode == 2
    assert f"ONNX Runtime cannot load {copy / 'weights.safetensors'}: " in done.stderr.decode()


def test_graphs_that_are_not_of_the_manifests_size_are_refused(segment, copy, clip):
    edit(copy, frame=[64, 96])
    done = segment(copy, frames=clip(1, 64, 96))
    assert (done.returncode, done.stdout) == (2, b"")
    assert "invalid dimensions for input: image" in done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--raw", "96x160"], "mrcfa export --frame 160x96"),
        (["--raw", "96"], "'96' is no size; write it like 864x480"),
        (["--raw", "0x5"], "'0x5' is no size; write it like 864x480"),
        (["--raw", "9999999999x5"], "'9999999999x5' is no size; write it like 864x480"),
        (["--raw"], "--raw needs a value; see mrcfa-segment --help"),
        (["--threads", "-1"], "--threads is '-1'; it must be a whole number, 0 or more"),
        (["--as", "video"], "unknown style 'video'; choose one of mask, color"),
        (["--backend", "openvino"], "unknown backend 'openvino'; choose one of auto, tensorrt, "),
        (["--backend", "onnxruntime:npu"], "unknown provider 'npu'; choose one of cuda, cpu"),
        (["--backend", "onnxruntime:cuda"], "ONNX Runtime cannot use its CUDAExecutionProvider"),
        (["--backend", "tensorrt"], "this build of mrcfa has no TensorRT; configure it with -D"),
        (["--precision", "int8"], "has no int8 graphs, only fp16, fp32; export it with --prec"),
        (["--quiet"], "unknown argument '--quiet'; see mrcfa-segment --help"),
        ([], "standard input has no frames"),
    ],
)
def test_bad_words_end_in_one_sentence_and_code_2(words, sentence, segment, bundle):
    done = segment(bundle("b0"), *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().count("\n") == 1
    assert sentence in done.stderr.decode()


def test_a_pipe_that_breaks_off_keeps_the_frames_that_came(segment, bundle, clip):
    done = segment(bundle("b0"), frames=clip(2, 96, 160).tobytes()[:-1])
    assert (done.returncode, len(done.stdout)) == (1, 96 * 160)
    lost = "the last frame on standard input was lost: 46079 of 46080 bytes came"
    assert lost in done.stderr.decode()


def test_colours_are_the_palettes(segment, bundle, clip):
    frames, stream = clip(1, 96, 160), Stream(bundle("b0"), "onnxruntime:cpu", threads=2)
    done = segment(bundle("b0"), "--as", "color", "--threads", 2, frames=frames)
    painted = np.frombuffer(done.stdout, np.uint8).reshape(96, 160, 3)
    assert np.array_equal(painted, stream.palette[stream(frames[0])])


CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


@pytest.mark.parametrize("include", TENSORRT_INCLUDES or [None])
def test_the_tensorrt_backend_compiles_without_a_warning(include):
    run("c++", *WARNINGS, "-fsyntax-only", *tensorrt_words(include), CPP / "src/tensorrt.cpp")


def test_without_a_gpu_the_real_libraries_end_in_one_sentence(build, copy, tmp_path):
    """NVIDIA's own TensorRT-RTX and CUDA, linked and started."""
    if machine.gpus():
        pytest.skip("not run: there is a GPU")
    words = tensorrt_words(TENSORRT_INCLUDES[-1] if TENSORRT_INCLUDES else None, "rtx")
    wheel, cudart = find_spec("tensorrt_rtx_libs"), CUDA / "lib64/libcudart.so"
    if wheel is None or not cudart.exists():
        pytest.skip("not run: no TensorRT-RTX or no CUDA runtime to link")
    (folder,) = wheel.submodule_search_locations or ()
    (library,) = Path(folder).glob("libtensorrt_rtx.so.*")
    program = compiled(
        tmp_path / "segment",
        *(*words, *TENSORRT_SOURCES, *objects(build), tool(build)),
        *(library, cudart, f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{cudart.parent}"),
    )
    path = with_engines(copy, flavour="rtx")
    done = subprocess.run([program, path, "--backend", "tensorrt"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("mrcfa-segment: no GPU can be used here: ")
    assert done.stderr.endswith("; choose onnxruntime:cpu to run without one\n")


def tensorrt_words(include: str | None, flavour: str = "tensorrt") -> list[Any]:
    """Compiler words for NVIDIA's headers, which are no system's package."""
    if include is None:
        pytest.skip("not run: TENSORRT_INCLUDE is not set")
    if not (CUDA / "include/cuda_runtime_api.h").is_file():
        pytest.skip("not run: no CUDA headers")
    system = ("-isystem", include, "-isystem", CUDA / "include")
    return ["-I", CPP / "include", "-I", CPP / "src", *system, f'-DMRCFA_TENSORRT="{flavour}"']
