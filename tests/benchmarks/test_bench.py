"""`bench` on real bundles: every row and every verdict."""

import json
from dataclasses import replace

import pytest

import mrcfa.benchmarks.bench
import mrcfa.benchmarks.contenders
import mrcfa.selftest.environment
from mrcfa.backends import Options, open_backend
from mrcfa.benchmarks.bench import bench
from mrcfa.benchmarks.contenders import Role, contenders
from mrcfa.benchmarks.footprint import footprint, measure
from mrcfa.benchmarks.result import Outcome
from mrcfa.benchmarks.table import notes
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device
from mrcfa.machine.gpu_models import GPU_MODELS
from mrcfa.machine.hardware import Gpu


def test_every_backend_has_a_row_and_those_that_ran_compute_the_model(benched):
    verdicts = {row.name: row.verdict for row in benched.rows}
    assert verdicts == {
        "eager-clip": "passed",
        "eager": "reference",
        "onnxruntime:cpu fp32": "passed",
        "onnxruntime:cpu fp16": "passed",
        "onnxruntime:cuda fp16": "not run",
        "onnxruntime:webgpu fp16": "not run",
        "tensorrt": "not run",
        "segformer-b0 onnxruntime:cpu fp32": "another model",
        "segformer-b0 onnxruntime:cuda fp16": "not run",
    }
    assert benched.passed
    assert benched.headline.startswith("Passed: eager-clip, onnxruntime:cpu fp32, ")
    assert benched.headline.endswith("4 of 9 rows did not run.")


def test_what_did_not_run_says_why_and_passes_nothing(benched, rows_of):
    rows = rows_of(benched)
    assert rows["onnxruntime:cuda fp16"].reason == "no CUDA device"
    assert "Vulkan" in rows["onnxruntime:webgpu fp16"].reason
    assert "mrcfa build" in rows["tensorrt"].reason
    for row in benched.rows:
        if row.outcome is Outcome.NOT_RUN:
            assert row.speed is None
            assert not row.checks


def test_masks_are_checked_pixel_by_pixel_class_by_class_and_over_time(benched, rows_of):
    checks = rows_of(benched)["onnxruntime:cpu fp16"].checks
    assert [check.name.partition(" (")[0] for check in checks] == [
        "pixels with the same class",
        "mean IoU of masks",
        "lowest IoU of classes with 0.5% of the pixels",
        "pixels that differ at frame 10",
        "pixels that differ at frame 40",
    ]
    assert rows_of(benched)["onnxruntime:cpu fp16"].drift.keys() == {10, 40}


def test_the_eager_row_is_the_stream_that_the_others_are_compared_with(benched, rows_of):
    assert rows_of(benched)["eager"].masks is benched.wanted


def test_speed_is_told_in_parts_and_as_ratios_to_the_clip_model_and_the_peer(benched, rows_of):
    row = rows_of(benched)["onnxruntime:cpu fp32"]
    assert row.speed.parts.keys() == {"encoder", "decoder"}
    assert (row.speed.parts["encoder"] + row.speed.parts["decoder"] <= row.speed.seconds).all()
    clip, peer = benched.faster_than_clip(row), benched.time_of_peer(row)
    assert 0 < clip.low <= clip.value <= clip.high
    assert 0 < peer.low <= peer.value <= peer.high
    assert benched.faster_than_clip(rows_of(benched)["eager-clip"]) is None


def test_a_row_is_compared_with_the_fastest_peer_on_its_device(benched, rows_of):
    row = rows_of(benched)["onnxruntime:cpu fp32"]
    peer = rows_of(benched)["segformer-b0 onnxruntime:cpu fp32"]
    slow, fast = (
        replace(peer, speed=replace(peer.speed, seconds=factor * peer.speed.seconds))
        for factor in (2.0, 0.5)
    )
    crowded = replace(benched, rows=(slow, *benched.rows, fast))
    assert crowded.time_of_peer(row).value == pytest.approx(2 * benched.time_of_peer(row).value)


def test_json_lines_hold_the_run_every_frame_and_every_row(benched):
    lines = [json.loads(line) for line in benched.to_json_lines().splitlines()]
    kinds = [line["kind"] for line in lines]
    timed = sum(row.speed is not None for row in benched.rows)
    variants = benched.bundle.manifest.variants
    assert kinds == (
        ["run"]
        + ["frame"] * 4 * timed
        + ["row"] * len(benched.rows)
        + ["cost"] * sum(len(each.cost) for each in variants.values())
        + ["bound"] * len(GPU_MODELS)
        + ["precision"] * len(variants)
    )
    bounds = [line["gpu"]["name"] for line in lines if line["kind"] == "bound"]
    assert bounds == [gpu.name for gpu in GPU_MODELS]
    assert lines[0]["environment"]["threads"] == "1"
    assert {line["frame"] for line in lines if line["kind"] == "frame"} == {9, 10, 11, 12}


@pytest.mark.thorough
def test_a_bundle_of_logits_is_compared_by_logits_too(bundle, quick):
    result = bench(bundle("b1", output="logits"), replace(quick, drift=100))
    for row in result.rows:
        assert [check.name for check in row.checks][:2] == [
            "largest logit error",
            "mean logit error",
        ]
        assert row.checks[-1].name == "largest logit error / range at frame 100"
        assert row.verdict == "passed"


def test_a_gpus_row_says_that_the_papers_model_ran_on_the_cpu(benched):
    rows = tuple(
        replace(row, contender=replace(row.contender, device=Device.GPU))
        if row.contender.role is Role.STREAM
        else row
        for row in benched.rows
    )
    told = replace(benched, rows=rows)
    assert " times as fast as the paper's model on clips on the CPU" in told.headline
    assert any("the paper's model ran on the CPU" in note for note in notes(told))
    assert not any("ran on the CPU" in note for note in notes(benched))


@pytest.mark.thorough
def test_an_engine_has_a_row_with_the_copies_among_its_parts(with_engine, monkeypatch, quick):
    monkeypatch.setattr(mrcfa.benchmarks.contenders, "gpus", lambda: [Gpu("Quadro RTX 6000", 75)])
    monkeypatch.setattr(mrcfa.benchmarks.bench, "environment", lambda threads: {"processor": "any"})
    monkeypatch.setattr(
        mrcfa.benchmarks.bench, "gpu_state", lambda: {"SM clock": "300 MHz", "power": "21 W"}
    )
    opened, engine = with_engine({"slow": 0.5}, {"quick": 0.125})
    result = bench(opened.path, replace(quick, backends=["tensorrt"]))
    row, singly, pipelined = result.rows
    assert [each.name for each in result.rows] == [
        engine.name,
        f"{engine.name} (no CUDA graphs)",
        f"{engine.name} (pipelined)",
    ]
    for each in (row, singly):
        assert each.speed.parts.keys() == {"upload", "encoder", "decoder", "download"}
        assert each.speed.intervals is None
    for each in result.rows:
        assert each.verdict == "passed"
        assert len(each.speed.seconds) == quick.frames
        assert each.gpu["before"] == {"SM clock": "300 MHz", "power": "21 W"}
    assert [layer.layer for layer in row.layers] == ["slow", "quick"]
    assert row.layers[0].milliseconds == 0.5
    assert singly.layers == ()
    assert len(pipelined.speed.intervals) == quick.frames
    assert pipelined.speed.fps == 1 / pipelined.speed.intervals.mean()
    assert pipelined.checks[-1].name == "frames that differ from one at a time"
    assert any(note.startswith(f"{pipelined.name}: milliseconds are lat") for note in notes(result))
    assert "rtx fp16 sm75, slowest layers: slow 0.500 ms, quick 0.125 ms" in notes(result)
    lines = [json.loads(line) for line in result.to_json_lines().splitlines()]
    (told,) = (line for line in lines if (line["kind"], line.get("row")) == ("row", row.name))
    assert told["slowest_layers"][0] == {"graph": "encoder", "layer": "slow", "milliseconds": 0.5}
    assert told["gpu"]["after"]["power"] == "21 W"


def test_an_onnxruntime_stream_starts_without_torch(bundle, peer_cache, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "footprint.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    found = footprint(bundle("b0"), "onnxruntime:cpu fp32", 1)
    assert found.start_s > 0
    assert found.peak_bytes < 300e6  # torch alone takes more


def test_what_each_further_stream_takes_on_a_gpu_is_measured(bundle, monkeypatch):
    used = iter([100, 900, 1500])
    monkeypatch.setattr(mrcfa.selftest.environment, "device_memory_used", lambda: next(used))
    real = contenders

    def on_a_gpu(*arguments):
        return [replace(each, device=Device.GPU) for each in real(*arguments)]

    monkeypatch.setattr(mrcfa.benchmarks.contenders, "contenders", on_a_gpu)
    monkeypatch.setattr(mrcfa.benchmarks.contenders, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    found = measure(bundle("b0"), "onnxruntime:cpu fp32", 1)
    assert (found.device_bytes, found.stream_bytes) == (800, 300)


def test_the_reference_is_the_eager_backend_itself(bundle):
    opened = Bundle.open(bundle("b0"))
    eager = mrcfa.benchmarks.contenders.reference(opened, threads=1)
    assert eager.open() is open_backend(opened, "eager", Options(threads=1))
