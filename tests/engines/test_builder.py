"""`mrcfa build` with the real TensorRT-RTX, whose builder needs no GPU."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import plugin_twin
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import cli
from engines.builder import Options, build_engines
from engines.layers import layers
from engines.progress import Phases
from engines.target import Target, choose_target
from export.select_tokens import Selection, function
from mrcfa import machine, preset
from mrcfa.bundle import Bundle, Engine, Graph, Manifest, new_bundle
from mrcfa.errors import MrcfaError
from mrcfa.flavours import Flavour, Message
from mrcfa.inspection import summary
from mrcfa.machine import Gpu

trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


def model(nodes, inputs, outputs, functions=()):
    def values(tensors):
        return [helper.make_tensor_value_info(name, *facts) for name, facts in tensors.items()]

    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mrcfa", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def tiny_encoder():
    return model(
        [helper.make_node("Cast", ["image"], ["base"], name="prepare", to=TensorProto.FLOAT16)],
        {"image": (TensorProto.UINT8, [1, 8, 8, 3])},
        {"base": (TensorProto.FLOAT16, [1, 8, 8, 3])},
    )


def tiny_decoder(selection):
    """STM alone: affinities in, the call of SelectTokens, indices out."""
    plugin = {"plugin_namespace": "mrcfa", "plugin_version": "1"}
    call = helper.make_node(
        "SelectTokens",
        ["affinity"],
        ["selected"],
        "stm",
        domain="mrcfa",
        **vars(selection),
        **plugin,
    )
    return model(
        [call],
        {"affinity": (TensorProto.FLOAT16, [3, 40, selection.tokens])},
        {"selected": (TensorProto.INT32, [3, selection.keep])},
        [function(selection, 18)],
    )


@pytest.fixture
def tiny(tmp_path):
    """`tiny(size=(64, 64))`: a bundle for that size with a decoder that only selects tokens."""

    def make(decoder=None, **changes):
        config = preset("vspw", "b0", **{"size": (96, 160), **changes})
        height, width = (side // 32 for side in config.size)
        selection = Selection(config.kept(height * width), 5, height, width, 1)
        graphs = {"encoder": tiny_encoder(), "decoder": decoder or tiny_decoder(selection)}
        with new_bundle(tmp_path / "tiny") as (folder, finish):
            for part, graph in graphs.items():
                onnx.save(graph, folder / f"{part}.fp16.onnx")
            entries = {part: Graph(f"{part}.fp16.onnx", (), (), 0) for part in graphs}
            blank = {name: {} for name in ("preprocessing", "weights", "files", "tools")}
            finish(Manifest("0", config, (8, 8), "mask", {"fp16": entries}, (), (), **blank))
        return tmp_path / "tiny"

    return make


@pytest.fixture
def b0(bundle, tmp_path):
    """A fresh copy of a real bundle."""
    return Path(shutil.copytree(bundle("b0"), tmp_path / "b0"))


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def build(path, *sms, **options):
    return build_engines(path, choose_target("rtx", sms or [75]), Options(**options))


def test_a_real_bundle_is_built_for_turing_and_for_ampere_with_ada(b0):
    for sms in (["--gpu", "quadro rtx 6000"], ["--sm", "8.6", "--sm", "89"]):
        answer = CliRunner().invoke(cli.app, ["build", str(b0), "--flavour", "rtx", *sms])
        assert answer.exit_code == 0, answer.output
    assert f"added the engine rtx fp16 sm86+sm89 to {b0}" in answer.stdout
    opened = Bundle.open(b0)
    assert [engine.name for engine in opened.manifest.engines] == [
        "rtx fp16 sm75",
        "rtx fp16 sm86+sm89",
    ]
    for engine in opened.manifest.engines:
        assert engine.tensorrt == trt.__version__
        assert engine.plugin is None
        assert opened.file(engine.encoder).stat().st_size > 1e6
        assert opened.file(engine.decoder).stat().st_size > 1e6
    listing = json.loads(opened.file(opened.manifest.engines[0].layers).read_text())
    assert {"name": "mask", "dtype": "UInt8", "shape": [1, 96, 160]} in [
        output for layer in listing["decoder"] for output in layer["outputs"]
    ]
    assert any("stm/MatMul" in layer["nodes"] for layer in listing["decoder"])
    assert len(listing["encoder"]) > len(listing["decoder"]) > 10
    assert f"encoder {len(listing['encoder'])} layers" in summary(opened)


def test_an_fp32_bundle_builds_where_the_gpu_can(b0):
    assert build(b0, 86, precision="fp32").engine.name == "rtx fp32 sm86"
    before = contents(b0)
    with pytest.raises(MrcfaError, match=r"no FP32 matrix product for sm_75 .* --precision fp16"):
        build(b0, 75, 86, precision="fp32")
    assert contents(b0) == before


def test_a_rebuild_replaces_and_other_engines_stay(tiny):
    path = tiny()
    first, other = build(path), build(path, 86)
    again = build(path, workspace_mb=64, optimization_level=1)
    assert again.bundle.manifest.engines == (other.engine, again.engine)
    listed = {*again.bundle.manifest.files, "manifest.json"}
    assert set(contents(path)) == listed
    assert {other.engine.encoder, again.engine.encoder} <= listed
    assert first.engine.name == again.engine.name
    for name in again.bundle.manifest.files:
        again.bundle.file(name)


def test_what_another_build_adds_meanwhile_stays(tiny):
    path = tiny()
    other = Engine("tensorrt", "10.3.0", (87,), "fp16", None, "e.engine", "d.engine", None)

    def meanwhile(part, share):
        if not Bundle.open(path).manifest.engines:
            Bundle.open(path).with_engine(other, {"e.engine": b"e", "d.engine": b"d"})

    built = build_engines(path, choose_target("rtx", [75]), Options(), meanwhile)
    assert built.bundle.manifest.engines == (other, built.engine)


def test_engines_of_graphs_that_were_replaced_meanwhile_are_not_added(tiny):
    path = tiny()

    def meanwhile(part, share):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["encoder.fp16.onnx"]["sha256"] = "other"
        (path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(MrcfaError, match="was exported anew meanwhile"):
        build_engines(path, choose_target("rtx", [75]), Options(), meanwhile)
    assert not list(path.glob("*.engine"))


def test_progress_rises_to_one_for_each_graph(tiny):
    heard = []
    build_engines(
        tiny(), choose_target("rtx", [75]), Options(), lambda *report: heard.append(report)
    )
    assert list(dict.fromkeys(part for part, _ in heard)) == ["encoder", "decoder"]
    for part in ("encoder", "decoder"):
        shares = [share for name, share in heard if name == part]
        assert len(shares) > 5
        assert shares == sorted(shares)
        assert shares[-1] == 1


def test_a_step_of_a_phase_may_be_a_phase_of_its_own():
    phases = Phases()
    phases.start("whole", None, 2)
    phases.step("whole", 0)
    phases.start("part", "whole", 4)
    phases.step("part", 1)
    assert phases.share == 0.75
    phases.finish("part")
    phases.step("unknown", 3)
    assert phases.share == 0.75


def test_ctrl_c_ends_a_build_and_leaves_the_bundle_as_it_was(tiny):
    path = tiny()
    before, pressed = contents(path), []

    def press(part, share):
        if not pressed:
            pressed.append(part)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build_engines(path, choose_target("rtx", [75]), Options(), press)
    assert contents(path) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_verbose_prints_what_tensorrt_says(tiny, capsys):
    path = tiny()
    build(path)
    assert capsys.readouterr().err == ""
    build(path, verbose=True)
    assert "Engine generation completed" in capsys.readouterr().err


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


def test_more_tokens_than_topk_takes_build_with_the_plugin_alone(tiny):
    path = tiny(size=(2048, 2048), keep=1.0)
    with pytest.raises(MrcfaError, match="keeps 4096 tokens of a frame and TensorRT's TopK takes"):
        build(path, plugin="never")
    with pytest.raises(MrcfaError, match=r"not loaded: compile engines/plugin .*--plugin-library"):
        build(path)
    assert build_with_twin(path, "auto") == ""
    (engine,) = Bundle.open(path).manifest.engines
    assert engine.plugin == "mrcfa::SelectTokens 1"
    plan = Bundle.open(path).file(engine.decoder).read_bytes()
    assert b"SelectTokens" in plan
    assert np.int32(4096).tobytes() in plan


def build_with_twin(path, plugin):
    """What goes wrong in a process of its own, where the plugin may stay registered."""
    command = [sys.executable, plugin_twin.__file__, path, plugin]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def test_a_small_selection_takes_the_plugin_where_it_is_asked_for(tiny):
    path = tiny()
    assert build_with_twin(path, "always") == ""
    assert Bundle.open(path).manifest.engines[0].plugin == "mrcfa::SelectTokens 1"


def test_a_graph_without_the_call_cannot_take_the_plugin(tiny):
    selection = Selection(12, 5, 3, 5, 1)
    path = tiny(onnx.inliner.inline_local_functions(tiny_decoder(selection)))
    assert "has no call of mrcfa::SelectTokens" in build_with_twin(path, "always")
    assert not Bundle.open(path).manifest.engines


def test_always_takes_the_plugin_and_wants_its_library(tiny, monkeypatch):
    path = tiny()
    with pytest.raises(MrcfaError, match="the plugin mrcfa::SelectTokens 1 is not loaded"):
        build(path, plugin="always")
    with pytest.raises(MrcfaError, match=r"nowhere\.so does not exist"):
        build(path, plugin="always", plugin_library=Path("nowhere.so"))
    monkeypatch.setenv("MRCFA_PLUGIN_LIBRARY", str(path / "manifest.json"))
    with pytest.raises(MrcfaError, match=r"manifest\.json does not provide .*: API Usage Error"):
        build(path, plugin="always")


def test_a_write_that_fails_half_way_leaves_the_bundle_as_it_was(tiny):
    path = tiny()
    build(path)
    before, limits = contents(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(MrcfaError, match="tiny cannot take the engine: File too large"):
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
        with pytest.raises(MrcfaError, match="cannot take the engine: No space left on device"):
            build(path, 86)
    assert contents(path) == before


def test_a_read_only_bundle_is_told_before_anything_is_built(tiny, monkeypatch):
    path, heard = tiny(), []

    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(MrcfaError, match="tiny cannot take the engine: Read-only file system"):
        build_engines(
            path, choose_target("rtx", [75]), Options(), lambda *report: heard.append(report)
        )
    assert not heard


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"precision": "fp32"}, "no FP32 matrix product"),
        ({"precision": "int8"}, "has no int8 graphs, only fp16"),
        ({"plugin": "maybe"}, "unknown --plugin 'maybe'; choose one of auto, never, always"),
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


@pytest.fixture
def classic(monkeypatch):
    """TensorRT 10 on an RTX A4000, its part played by TensorRT-RTX."""
    monkeypatch.setattr(machine, "gpus", lambda: [Gpu("NVIDIA RTX A4000", 86)])
    return Target(Flavour.TENSORRT, trt, (86,))


def test_the_same_builder_builds_with_tensorrt_for_the_gpu_that_is_there(tiny, classic):
    path = tiny()
    build_engines(path, replace(classic, flavour=Flavour.RTX), Options())
    built = build_engines(path, classic, Options())
    assert [engine.name for engine in built.bundle.manifest.engines] == [
        "rtx fp16 sm86",
        "tensorrt fp16 sm86",
    ]


@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")
def test_a_timing_cache_is_made_and_a_file_that_is_none_is_not_overwritten(tiny, classic, tmp_path):
    cache = tmp_path / "timings"
    build_engines(tiny(), classic, Options(timing_cache=cache))
    assert cache.stat().st_size > 0
    cache.write_bytes(b"a letter to somebody")
    with pytest.raises(MrcfaError, match="timings is no timing cache of this GPU and TensorRT"):
        build_engines(tmp_path / "tiny", classic, Options(timing_cache=cache))
    assert cache.read_bytes() == b"a letter to somebody"


def test_layers_are_read_from_the_lines_of_tensorrt_10_too():
    text = (
        "Layers:\n"
        "Name: conv + relu, LayerType: CaskConvolution, Inputs: [ { Name: image, Location: Device, "
        "Dimensions: [1,3,8,8], Format/Datatype: Half }], Outputs: [ { Name: relu, "
        "Location: Device, Dimensions: [1,64,8,8], Format/Datatype: Half }], "
        "ParameterType: Convolution, "
        'Weights: {"Type": "Half", "Count": 23232}, TacticName: sm80_xmma_fprop, '
        "TacticValue: 0x28, StreamId: 0, Metadata: [ONNX Layer: a/Conv][ONNX Layer: a/Relu]"
    )
    assert layers([Message(4, "Name: image, IOMode: Input"), Message(4, text)]) == [
        {
            "name": "conv + relu",
            "type": "CaskConvolution",
            "tactic": "sm80_xmma_fprop",
            "nodes": ["a/Conv", "a/Relu"],
            "outputs": [{"name": "relu", "dtype": "Half", "shape": [1, 64, 8, 8]}],
        }
    ]
