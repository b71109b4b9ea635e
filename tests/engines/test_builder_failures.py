"""Builds that cannot end well: they say why, and leave the bundle as it was."""

import json
import os
import resource
import signal
from pathlib import Path

import pytest
from naming import naming
from onnx import TensorProto, helper
from tiny_bundle import build, contents, model

from mrcfa.bundle import Unfit
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.target import choose_target
from mrcfa.errors import InvalidValue, MrcfaError, RuntimeFailed, Unsupported, WrongState
from mrcfa.machine.files import CannotWrite

trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


def test_engines_of_graphs_that_were_replaced_meanwhile_are_not_added(tiny):
    path = tiny()

    def meanwhile(part, share):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["encoder.fp16.onnx"]["sha256"] = "other"
        (path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(WrongState, match=naming("tiny")):
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
    decoder = (f"TensorRT-RTX {trt.__version__}", "decoder.fp16.onnx")
    with pytest.raises(RuntimeFailed, match=naming(*decoder, "'retrieval/MatMul'", "SM75")):
        build(path)
    assert contents(path) == before


def test_a_node_that_tensorrt_cannot_read_is_named(tiny):
    odd = model(
        [helper.make_node("NonZero", ["a"], ["b"], name="stm/NonZero")],
        {"a": (TensorProto.FLOAT16, [8])},
        {"b": (TensorProto.INT64, [1, None])},
    )
    with pytest.raises(Unsupported, match=naming("decoder.fp16.onnx", "stm/NonZero")):
        build(tiny(odd))


def test_a_write_that_fails_half_way_leaves_the_bundle_as_it_was(tiny):
    path = tiny()
    build(path)
    before, limits = contents(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CannotWrite, match=naming("engine", "File too large")):
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
        with pytest.raises(CannotWrite, match=naming("tiny", "No space left on device")):
            build(path, 86)
    assert contents(path) == before


def test_a_read_only_bundle_is_told_before_anything_is_built(tiny, monkeypatch):
    path, heard = tiny(), []

    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("mrcfa.machine.files.TemporaryFile", refuse)
    with pytest.raises(CannotWrite, match=naming("tiny/manifest.json", "Read-only file system")):
        build_engines(
            path,
            choose_target(FlavourChoice.RTX, [75]),
            BuildOptions(),
            lambda *report: heard.append(report),
        )
    assert not heard


@pytest.mark.parametrize(
    ("options", "kind", "things"),
    [
        ({"precision": "fp32"}, Unsupported, ("sm_75", "--precision fp16")),
        ({"precision": "int8"}, Unfit, ("tiny", "int8", "GPU", "fp16")),
        ({"optimization_level": 6}, InvalidValue, ("optimization level", 6, 0, 5)),
        ({"workspace_mb": 0}, InvalidValue, ("workspace", 0, 1)),
        ({"timing_cache": Path("cache")}, Unsupported, ("TensorRT-RTX", "--timing-cache")),
        ({"version_compatible": True}, Unsupported, ("TensorRT-RTX", "--version-compatible")),
    ],
)
def test_options_that_cannot_work_are_refused(options, kind, things, tiny):
    with pytest.raises(kind, match=naming(*things)):
        build(tiny(), **options)


def test_a_truncated_graph_is_refused(tiny):
    path = tiny()
    with (path / "decoder.fp16.onnx").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(MrcfaError, match=naming("decoder.fp16.onnx")):
        build(path)
