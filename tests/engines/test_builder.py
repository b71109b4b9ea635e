"""`mrcfa build` with the real TensorRT-RTX, whose builder needs no GPU."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from naming import names, naming
from tiny_bundle import build, contents
from typer.testing import CliRunner

from mrcfa import cli
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.inspection import summary
from mrcfa.bundle.manifest import Engine
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.progress import Phases
from mrcfa.engines.target import Target, choose_target
from mrcfa.errors import Mismatch, Unsupported
from mrcfa.machine import hardware
from mrcfa.machine.hardware import Gpu

trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


MOST_WRITTEN = 8_000_000
"""Bytes per frame by the kernels of b0's engines at 96×160: 7.0 MB for Ampere, 7.4 for Turing.

Full-size logits alone would be 3.8. A change that writes more undoes what the forms of
docs/algebra.md, lemmas 9 and 12 to 15, are for."""


def written(engine):
    """Bytes per frame of both plans; a plan without a cost would look as if it wrote none."""
    assert engine.costs.keys() == {"encoder", "decoder"}
    return sum(cost.bytes_written for cost in engine.costs.values())


@pytest.fixture
def b0(bundle, tmp_path):
    """A fresh copy of a real bundle."""
    return Path(shutil.copytree(bundle("b0"), tmp_path / "b0"))


def test_a_real_bundle_is_built_for_turing_and_for_ampere_with_ada(b0):
    for sms in (["--gpu", "quadro rtx 6000"], ["--sm", "8.6", "--sm", "89"]):
        answer = CliRunner().invoke(cli.app, ["build", str(b0), "--flavour", "rtx", *sms])
        assert answer.exit_code == 0, answer.output
    assert names(answer.stdout, "rtx fp16 sm86+sm89", b0)
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
        assert written(engine) <= MOST_WRITTEN, engine.name
    listing = json.loads(opened.file(opened.manifest.engines[0].layers).read_text())
    assert {"name": "mask", "dtype": "UInt8", "shape": [1, 96, 160]} in [
        output for layer in listing["decoder"] for output in layer["outputs"]
    ]
    assert any("stm/MatMul" in layer["nodes"] for layer in listing["decoder"])
    assert len(listing["encoder"]) > len(listing["decoder"]) > 10
    assert f"encoder {len(listing['encoder'])} layers" in summary(opened)


@pytest.mark.thorough
def test_four_streams_at_once_write_no_more_for_a_frame_than_one(bundle, tmp_path):
    path = Path(shutil.copytree(bundle("b0", streams=4), tmp_path / "four"))
    for sms in (["--sm", "75"], ["--sm", "86", "--sm", "89"]):
        answer = CliRunner().invoke(cli.app, ["build", str(path), "--flavour", "rtx", *sms])
        assert answer.exit_code == 0, answer.output
    opened = Bundle.open(path)
    for engine in opened.manifest.engines:
        assert written(engine) <= MOST_WRITTEN, engine.name
        listing = json.loads(opened.file(engine.layers).read_text())
        assert {"name": "mask", "dtype": "UInt8", "shape": [4, 96, 160]} in [
            output for layer in listing["decoder"] for output in layer["outputs"]
        ]


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["segformer", "feature-pyramid"])
def test_a_baseline_is_built_for_turing_and_for_ampere(method, baseline, tmp_path):
    path = Path(shutil.copytree(baseline(method), tmp_path / method))
    for sm in ("75", "86"):
        answer = CliRunner().invoke(cli.app, ["build", str(path), "--flavour", "rtx", "--sm", sm])
        assert answer.exit_code == 0, answer.output
    engines = Bundle.open(path).manifest.engines
    assert [engine.name for engine in engines] == ["rtx fp16 sm75", "rtx fp16 sm86"]


@pytest.mark.thorough
def test_a_model_that_selects_no_tokens_takes_no_plugin(baseline, tmp_path):
    path = Path(shutil.copytree(baseline("segformer"), tmp_path / "segformer"))
    words = ["--flavour", "rtx", "--sm", "86", "--plugin", "always"]
    answer = CliRunner().invoke(cli.app, ["build", str(path), *words])
    assert isinstance(answer.exception, Unsupported)
    assert names(str(answer.exception), "SegFormer", "--plugin always")


def test_without_a_gpu_a_build_makes_turings_engine_and_one_for_ampere_and_ada(tiny, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    path = tiny()
    answer = CliRunner().invoke(cli.app, ["build", str(path), "--warm"])
    assert answer.exit_code == 0, answer.output
    engines = [engine.name for engine in Bundle.open(path).manifest.engines]
    assert engines == ["rtx fp16 sm75", "rtx fp16 sm86+sm89"]
    assert names(answer.stdout.splitlines()[-1], "warming", "not run", "GPU")


def test_with_an_ada_gpu_a_build_makes_its_engine_alone(tiny, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    path = tiny()
    answer = CliRunner().invoke(cli.app, ["build", str(path)])
    assert answer.exit_code == 0, answer.output
    assert [engine.name for engine in Bundle.open(path).manifest.engines] == ["rtx fp16 sm89"]


@pytest.mark.thorough
def test_fp32_graphs_for_gpus_build_where_the_gpu_can(bundle, tmp_path):
    b0 = Path(shutil.copytree(bundle("b0", variants=("fp32-gpu",)), tmp_path / "b0"))
    built = build(b0, 86, precision="fp32").engine
    assert (built.name, built.variant) == ("rtx fp32 sm86", "fp32-gpu")
    before = contents(b0)
    with pytest.raises(Unsupported, match=naming("sm_75", "--precision fp16", "--sm 86")):
        build(b0, 75, 86, precision="fp32")
    assert contents(b0) == before


def test_fp32_stays_fp32_and_rtx_allocates_nothing_while_it_is_recorded(tiny, monkeypatch):
    flags = trt.BuilderFlag
    seen = []
    real = trt.Builder.build_serialized_network

    def build_serialized_network(self, network, config):
        seen.append((config.get_flag(flags.TF32), config.get_flag(flags.REQUIRE_USER_ALLOCATION)))
        return real(self, network, config)

    monkeypatch.setattr(trt.Builder, "build_serialized_network", build_serialized_network)
    build(tiny(), 86)
    assert seen == [(False, True)] * 2


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
    other = Engine("tensorrt", "10.3.0", (87,), "fp16", "fp16", None, "e.engine", "d.engine")

    def meanwhile(part, share):
        if not Bundle.open(path).manifest.engines:
            Bundle.open(path).with_engine(other, {"e.engine": b"e", "d.engine": b"d"})

    built = build_engines(path, choose_target(FlavourChoice.RTX, [75]), BuildOptions(), meanwhile)
    assert built.bundle.manifest.engines == (other, built.engine)


def test_progress_rises_to_one_for_each_graph(tiny):
    heard = []
    build_engines(
        tiny(),
        choose_target(FlavourChoice.RTX, [75]),
        BuildOptions(),
        lambda *report: heard.append(report),
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


def test_verbose_prints_what_tensorrt_says(tiny, capsys):
    path = tiny()
    build(path)
    assert capsys.readouterr().err == ""
    build(path, verbose=True)
    assert "Engine generation completed" in capsys.readouterr().err


@pytest.fixture
def classic(monkeypatch):
    """TensorRT 10 on an RTX A4000, its part played by TensorRT-RTX."""
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA RTX A4000", 86)])
    return Target(Flavour.TENSORRT, trt, (86,), "NVIDIA RTX A4000")


def test_the_same_builder_builds_with_tensorrt_for_the_gpu_that_is_there(tiny, classic):
    path = tiny()
    build_engines(path, replace(classic, flavour=Flavour.RTX, gpu=None), BuildOptions())
    built = build_engines(path, classic, BuildOptions())
    assert {engine.name: engine.gpu for engine in built.bundle.manifest.engines} == {
        "rtx fp16 sm86": None,
        "tensorrt fp16 sm86": "NVIDIA RTX A4000",
    }


@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")
def test_a_timing_cache_is_made_and_a_file_that_is_none_is_not_overwritten(tiny, classic, tmp_path):
    cache = tmp_path / "timings"
    build_engines(tiny(), classic, BuildOptions(timing_cache=cache))
    assert cache.stat().st_size > 0
    cache.write_bytes(b"a letter to somebody")
    with pytest.raises(Mismatch, match=naming("timings", "TensorRT")):
        build_engines(tmp_path / "tiny", classic, BuildOptions(timing_cache=cache))
    assert cache.read_bytes() == b"a letter to somebody"
