"""The C++ library against Python's runtime, through what a user gets.

That is mrcfa-segment, the installed package and the public header.
"""

import json
import os
import re
import shutil
from importlib import import_module

import numpy as np
import pytest
import software_gpu
from cpp_library import (
    CPP,
    FLAGS,
    FRAMES,
    RESET,
    SANITIZE,
    compiled,
    edit,
    include_of,
    masks_in,
    run,
    runner_of,
)
from naming import names

from mrcfa import Stream
from mrcfa.bundle import MANIFEST
from mrcfa.model.input_format import InputFormat, Layout, Matrix, Range


@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16", marks=pytest.mark.thorough)])
def test_masks_are_pythons_bit_by_bit_through_a_reset(
    precision, segment, bundle, clip, pythons_masks
):
    path, frames = bundle("b0"), clip(FRAMES, 96, 160)
    options = ("--raw", "96x160", "--precision", precision, "--threads", 2, "--reset-every", RESET)
    masks = masks_in(segment(path, *options, frames=frames), frames)
    assert len(np.unique(masks)) > 5
    assert np.array_equal(masks, pythons_masks(path, precision, frames))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_logits_become_pythons_masks(precision, segment, bundle, clip, pythons_masks):
    path, frames = bundle("b1", output="logits"), clip(4, 96, 160)
    done = segment(path, "--precision", precision, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, precision, frames))


def test_frames_of_a_camera_are_resized_in_the_graphs(segment, tailored, clip, pythons_masks):
    frames = clip(6, 107, 189)
    done = segment(tailored, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(tailored, "fp32", frames))


def test_frames_of_nv12_have_pythons_masks(segment, bundle, clip):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",))
    frames = np.stack([form.from_rgb(image) for image in clip(FRAMES, 96, 160)])
    stream = Stream(path, "onnxruntime:cpu", threads=2)
    done = segment(path, "--threads", 2, frames=frames)
    masks = np.frombuffer(done.stdout, np.uint8).reshape(-1, 96, 160)
    assert np.array_equal(masks, [stream(frame) for frame in frames])
    assert names(segment(path, "--info").stdout.decode(), "nv12", "bt601", "limited")


@pytest.mark.parametrize(
    "method", ["segformer", pytest.param("feature-pyramid", marks=pytest.mark.thorough)]
)
def test_a_baselines_masks_are_pythons_and_its_name_is_told(
    method, segment, baseline, clip, pythons_masks
):
    path, frames = baseline(method), clip(FRAMES, 64, 96)
    done = segment(path, "--threads", 2, "--reset-every", RESET, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, "fp32", frames))
    assert (
        segment(path, "--info").stdout.decode().startswith(f"{method} b0, preset cityscapes, 19 ")
    )


def test_siblings_moves_and_refusals_work_through_the_header(build, bundle, tmp_path):
    library = (build / "libmrcfa.so", f"-Wl,-rpath,{build}")
    run(compiled(tmp_path / "api", CPP / "test/api.cpp", *library), bundle("b0"))


@pytest.mark.thorough
def test_every_slot_of_several_streams_is_as_if_it_were_alone(build, bundle, tmp_path):
    library = (build / "libmrcfa.so", f"-Wl,-rpath,{build}")
    program = compiled(tmp_path / "streams", CPP / "test/streams.cpp", *library)
    run(program, bundle("b0", streams=3), bundle("b0"), "onnxruntime:cpu")


def test_an_installed_library_is_found_by_cmake_and_by_pkg_config(build, bundle, tmp_path):
    prefix, tree = tmp_path / "prefix", tmp_path / "tree"
    run("cmake", "--install", build, "--prefix", prefix)
    run(
        *("cmake", "-S", CPP / "example", "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DCMAKE_CXX_FLAGS={' '.join(FLAGS)}",
    )
    run("cmake", "--build", tree)
    assert "frame 9: " in run(tree / "example", bundle("b0")).stdout
    shown = run(prefix / "bin/mrcfa-segment", bundle("b0"), "--info").stdout
    assert names(shown, "96x160", "onnxruntime (CPU, fp32)")
    if shutil.which("pkg-config"):
        (folder,) = prefix.glob("lib*/**/pkgconfig")
        found = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
        flags = run("pkg-config", "--cflags", "--libs", "mrcfa", env=found).stdout.split()
        compiled(tree / "plain", CPP / "example/main.cpp", *flags)


def test_a_graph_that_is_no_graph_is_named(segment, copy):
    variants = json.loads((copy / MANIFEST).read_text())["variants"]
    variants["fp32"]["encoder"]["file"] = "weights.safetensors"
    edit(copy, variants=variants)
    done = segment(copy)
    assert done.returncode == 2
    assert names(done.stderr.decode(), copy / "weights.safetensors")


def test_graphs_that_are_not_of_the_manifests_size_are_refused(segment, copy, clip):
    edit(copy, frame=[64, 96])
    done = segment(copy, frames=clip(1, 64, 96))
    assert (done.returncode, done.stdout) == (2, b"")
    assert names(done.stderr.decode(), "image")


@pytest.mark.parametrize(
    ("words", "things"),
    [
        (["--raw", "160x96"], ("--raw 96x160", "mrcfa export --frame 160x96")),
        (["--raw", "64x96"], ("96x160", "mrcfa export --frame 64x96")),
        (["--raw", "96"], ("'96'", "480x864")),
        (["--raw", "0x5"], ("'0x5'", "480x864")),
        (["--raw", "9999999999x5"], ("'9999999999x5'", "480x864")),
        (["--raw"], ("--raw", "--help")),
        (["--threads", "-1"], ("--threads", "'-1'")),
        (["--as", "video"], ("'video'", "mask", "color")),
        (["--backend", "openvino"], ("'openvino'", "auto", "tensorrt", "onnxruntime")),
        (["--backend", "onnxruntime:npu"], ("'npu'", "cuda", "cpu")),
        (["--backend", "onnxruntime:cuda"], ("CUDAExecutionProvider", "onnxruntime:cpu")),
        (["--backend", "onnxruntime:webgpu"], ("WebGPU", "ONNX Runtime")),
        (["--backend", "tensorrt"], ("TensorRT", "-DMRCFA_TENSORRT=tensorrt")),
        (["--quiet"], ("'--quiet'", "--help")),
        ([], ("standard input",)),
    ],
)
def test_bad_words_end_in_one_sentence_and_code_2(words, things, segment, bundle):
    done = segment(bundle("b0"), *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().count("\n") == 1
    assert names(done.stderr.decode(), *things)


@pytest.mark.thorough  # shaders are compiled for 13 s
def test_webgpu_computes_on_a_software_adapter_as_pythons_cpu_does(
    segment, bundle, clip, pythons_masks
):
    if what := software_gpu.missing() or old_headers():
        pytest.skip(f"C++ on WebGPU: not run ({what})")
    path = bundle("b0", size=(64, 64), variants=("fp32-gpu",))
    frames, library = clip(2, 64, 64), import_module("onnxruntime_ep_webgpu").get_library_path()
    gpu = {**software_gpu.environment(), "MRCFA_WEBGPU_LIBRARY": library}
    words = (path, "--backend", "onnxruntime:webgpu")
    told = segment(*words, "--info", **gpu).stdout.decode()
    assert names(told, "onnxruntime (WebGPU, SwiftShader, software, fp32)")
    masks = masks_in(segment(*words, frames=frames, **gpu), frames)
    assert (masks == pythons_masks(path, "fp32", frames)).mean() > 0.999
    done = segment(*words, "--precision", "fp16", **gpu)
    assert names(done.stderr.decode(), "SwiftShader", "FP16", "shader-f16")


def old_headers():
    """The reason why ONNX Runtime's headers do not do for WebGPU; empty if they do."""
    text = (include_of("onnxruntime_c_api.h") / "onnxruntime_c_api.h").read_text()
    version = int(re.search(r"#define ORT_API_VERSION (\d+)", text)[1])
    return "" if version >= 23 else f"headers of ONNX Runtime 1.{version}; it needs 1.23"


def test_a_pipe_that_breaks_off_keeps_the_frames_that_came(segment, bundle, clip):
    done = segment(bundle("b0"), frames=clip(2, 96, 160).tobytes()[:-1])
    assert (done.returncode, len(done.stdout)) == (1, 96 * 160)
    assert names(done.stderr.decode(), "standard input", 46079, 46080)


def test_colours_are_the_palettes(segment, bundle, clip):
    frames, stream = clip(1, 96, 160), Stream(bundle("b0"), "onnxruntime:cpu", threads=2)
    done = segment(bundle("b0"), "--as", "color", "--threads", 2, frames=frames)
    painted = np.frombuffer(done.stdout, np.uint8).reshape(96, 160, 3)
    assert np.array_equal(painted, stream.palette[stream(frames[0])])


def test_the_cpp_library_switches_onnx_runtimes_telemetry_off(
    build, bundle, clip, tmp_path, monkeypatch
):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    home, calls = tmp_path / "home", tmp_path / "calls"
    home.mkdir()
    words = [build / "mrcfa-segment", bundle("b0")]
    strace = shutil.which("strace") if SANITIZE == "OFF" else None  # which sanitizers cannot bear
    if strace:
        words = [strace, "-fqq", "-e", "trace=connect,sendto", "-o", calls, *words]
    program, *rest = words
    done = runner_of(program)(*rest, frames=clip(1, 96, 160), HOME=str(home), XDG_CACHE_HOME="")
    assert done.returncode == 0
    assert not list(home.iterdir())
    assert not strace or "AF_INET" not in calls.read_text()


def test_cmake_takes_the_wheel_of_the_python_that_is_first_in_path_now(tmp_path, monkeypatch):
    """Also where it was configured before, with another one: outside a virtual environment."""
    if shutil.which("cmake") is None:
        pytest.skip("C++: not run (no cmake)")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(wheel LANGUAGES NONE)\n"
        "set(CMAKE_INSTALL_LIBDIR lib)\n"
        f"include({CPP}/cmake/wheel.cmake)\nmessage(STATUS is=${{ONNXRuntime_LIBRARY}})\n"
    )
    path = os.environ["PATH"]
    for name in ("none", "has"):
        python = tmp_path / name / "python3"
        wheel = tmp_path / name / "onnxruntime"
        (wheel / "capi").mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho {wheel}\n")
        python.chmod(0o755)
    (tmp_path / "has/onnxruntime/capi/libonnxruntime.so.1.99.0").touch()
    found = []
    for name in ("none", "has"):
        monkeypatch.setenv("PATH", f"{tmp_path / name}:{path}")
        done = run("cmake", "-S", tmp_path, "-B", tmp_path / "build")
        found.append(re.search("is=(.*)", done.stdout)[1])
    assert found == ["", f"{tmp_path}/build/onnxruntime/libonnxruntime.so"]
