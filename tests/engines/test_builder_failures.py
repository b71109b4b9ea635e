"""Builds that cannot end well: they say why, and leave the bundle as it was."""

import json
import os
import resource
import signal
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from tiny_bundle import build, contents, model

from engines.builder import BuildOptions, build_engines
from engines.choices import FlavourChoice
from engines.target import choose_target
from mrcfa.errors import MrcfaError

trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


def test_engines_of_graphs_that_were_replaced_meanwhile_are_not_added(tiny):
    path = tiny()

    def meanwhile(part, share):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["encoder.fp16.onnx"]["sha256"] = "other"
        (path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(MrcfaError, match="was exported anew meanwhile"):
        build_engines(path, choose_target(FlavourChoice.RTX, [75]), BuildOptions(), meanwhile)
    assert not list(path.glob("*.engine"))


def test_ctrl_c_ends_a_build_and_leaves_the_bundle_as_it_was(tiny):
    path = tiny()
    before, pressed, handler = contents(path), [], signal.getsignal(signal.SIGINT)

    def press(part, share):
        if not pressed:
            pressed.append(part)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build_engines(path, choose_target(FlavourChoice.RTX, [75]), BuildOptions(), press)
    assert contents(path) == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_tensorrts_own_error_reaches_the_user_with_the_node(tiny):
    wide = model(
        [helper.make_node("MatMul", ["a", "a"], ["b"], name="retrieval/MatMul")],
        {"a": (TensorProto.FLOAT, [64, 64])},
        {"b": (TensorProto.FLOAT, [64, 64])},
    )
    path = tiny(wide)
    before = contents(path)
    with pytest.raises(MrcfaError) as caught:
        build(path)
    assert str(caught.value) == (
        f"TensorRT-RTX {trt.__version__} cannot build decoder.fp16.onnx: Myelin: Cannot compile "
        "operation 'retrieval/MatMul' for Turing (SM75): FP32 GEMM is not supported."
    )
    assert contents(path) == before


def test_a_node_that_tensorrt_cannot_read_is_named(tiny):
    odd = model(
        [helper.make_node("NonZero", ["a"], ["b"], name="stm/NonZero")],
        {"a": (TensorProto.FLOAT16, [8])},
        {"b": (TensorProto.INT64, [1, None])},
    )
    with pytest.raises(MrcfaError, match=r"cannot read decoder\.fp16\.onnx: node stm/NonZero"):
        build(tiny(odd))


def test_a_write_that_fails_half_way_leaves_the_bundle_as_it_was(tiny):
    path = tiny()
    build(path)
    before, limits = contents(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(MrcfaError, match=r"cannot write .*engine: File too large"):
            build(path, 86)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(path) == before


@pytest.mark.parametrize("number", [0, 1, 2, 3], ids=["encoder", "decoder", "layers", "manifest"])
def test_a_full_disk_leaves_the_bundle_as_it_was(number, tiny, monkeypatch):
    path = tiny()
    build(path)
    before, calls = contents(path), []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > number:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(MrcfaError, match=r"cannot write .*: No space left on device"):
            build(path, 86)
    assert contents(path) == before


def test_a_read_only_bundle_is_told_before_anything_is_built(tiny, monkeypatch):
    path, heard = tiny(), []

    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("mrcfa.files.TemporaryFile", refuse)
    with pytest.raises(MrcfaError, match=r"cannot write .*tiny/manifest.json: Read-only file"):
        build_engines(
            path,
            choose_target(FlavourChoice.RTX, [75]),
            BuildOptions(),
            lambda *report: heard.append(report),
        )
    assert not heard


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"precision": "fp32"}, "no FP32 matrix product"),
        ({"precision": "int8"}, "has no int8 graphs for a GPU, only fp16"),
        ({"optimization_level": 6}, "optimization level 6 is not between 0 and 5"),
        ({"workspace_mb": 0}, "a workspace of 0 MB is none"),
        ({"timing_cache": Path("cache")}, "TensorRT-RTX does not know --timing-cache"),
        ({"version_compatible": True}, "TensorRT-RTX does not know --version-compatible"),
    ],
)
def test_options_that_cannot_work_are_refused(options, reason, tiny):
    with pytest.raises(MrcfaError, match=reason):
        build(tiny(), **options)


def test_a_truncated_graph_is_refused(tiny):
    path = tiny()
    with (path / "decoder.fp16.onnx").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(MrcfaError, match=r"decoder\.fp16\.onnx is not the file"):
        build(path)
