"""`bench` on real bundles: every row, every verdict, and what happens when something breaks."""

import json
import shutil
import sys
from dataclasses import replace

import fake_gpu
import pytest

import benchmarks.bench
import benchmarks.contenders
from benchmarks.bench import bench
from benchmarks.contenders import Contender, Role, contenders
from benchmarks.cost import GPUS
from benchmarks.footprint import footprint
from benchmarks.result import Outcome, Request
from benchmarks.table import notes
from mrcfa.backends import Backend, open_backend
from mrcfa.bundle import Bundle, Engine
from mrcfa.errors import MrcfaError
from mrcfa.extras import MissingExtra
from mrcfa.machine import Gpu

QUICK = Request(backends=["onnxruntime:cpu"], frames=3, warmup=9, drift=0, threads=1, peer=False)


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    monkeypatch.setattr(benchmarks.bench, "footprint", lambda *_: None)


def rows_of(result):
    return {row.name: row for row in result.rows}


def test_every_backend_has_a_row_and_those_that_ran_compute_the_model(benched):
    verdicts = {row.name: row.verdict for row in benched.rows}
    assert verdicts == {
        "eager-clip": "passed",
        "eager": "reference",
        "onnxruntime:cpu fp32": "passed",
        "onnxruntime:cpu fp16": "passed",
        "onnxruntime:cuda fp32": "not run",
        "onnxruntime:cuda fp16": "not run",
        "tensorrt": "not run",
        "segformer-b0 onnxruntime:cpu fp32": "another model",
        "segformer-b0 onnxruntime:cuda fp16": "not run",
    }
    assert benched.passed
    assert benched.headline.startswith("Passed: eager-clip, onnxruntime:cpu fp32, ")
    assert benched.headline.endswith("4 of 9 rows did not run.")


def test_what_did_not_run_says_why_and_passes_nothing(benched):
    rows = rows_of(benched)
    assert rows["onnxruntime:cuda fp16"].reason == "no CUDA device"
    assert "mrcfa build" in rows["tensorrt"].reason
    for row in benched.rows:
        if row.outcome is Outcome.NOT_RUN:
            assert row.speed is None
            assert not row.checks


def test_masks_are_checked_pixel_by_pixel_class_by_class_and_over_time(benched):
    checks = rows_of(benched)["onnxruntime:cpu fp16"].checks
    assert [check.name.partition(" (")[0] for check in checks] == [
        "pixels with the same class",
        "mean IoU of masks",
        "IoU of the worst class",
        "pixels that differ at frame 10",
        "pixels that differ at frame 100",
    ]
    assert rows_of(benched)["onnxruntime:cpu fp16"].drift.keys() == {10, 100}


def test_the_eager_row_is_the_stream_that_the_others_are_compared_with(benched):
    assert rows_of(benched)["eager"].masks is benched.wanted


def test_speed_is_told_in_parts_and_as_ratios_to_the_clip_model_and_the_peer(benched):
    row = rows_of(benched)["onnxruntime:cpu fp32"]
    assert row.speed.parts.keys() == {"encoder", "decoder"}
    assert (row.speed.parts["encoder"] + row.speed.parts["decoder"] <= row.speed.seconds).all()
    clip, peer = benched.faster_than_clip(row), benched.time_of_peer(row)
    assert 1 < clip.low <= clip.value <= clip.high
    assert peer.low <= peer.value <= peer.high
    assert benched.faster_than_clip(rows_of(benched)["eager-clip"]) is None


def test_json_lines_hold_the_run_every_frame_and_every_row(benched):
    lines = [json.loads(line) for line in benched.to_json_lines().splitlines()]
    kinds = [line["kind"] for line in lines]
    timed = sum(row.speed is not None for row in benched.rows)
    assert kinds[: -len(GPUS)] == (
        ["run"]
        + ["frame"] * 4 * timed
        + ["row"] * len(benched.rows)
        + ["cost"] * len(benched.bundle.manifest.cost)
    )
    assert [line["gpu"]["name"] for line in lines[-len(GPUS) :]] == [gpu.name for gpu in GPUS]
    assert lines[0]["environment"]["threads"] == "1"
    assert {line["frame"] for line in lines if line["kind"] == "frame"} == {9, 10, 11, 12}


def test_a_bundle_of_logits_is_compared_by_logits_too(bundle):
    result = bench(bundle("b0", output="logits"), replace(QUICK, drift=100))
    for row in result.rows:
        assert [check.name for check in row.checks][:2] == [
            "largest logit error",
            "mean logit error",
        ]
        assert row.checks[-1].name == "largest logit error / range at frame 100"
        assert row.verdict == "passed"


def substitute(monkeypatch, backend):
    """Let `backend(real)` stand in for every stream."""
    real = contenders

    def substituted(*arguments):
        return [
            replace(each, create=lambda each=each: backend(each.open()))
            if each.role is Role.STREAM
            else each
            for each in real(*arguments)
        ]

    monkeypatch.setattr(benchmarks.bench, "contenders", substituted)


class Wrong(Backend):
    """Its masks are another class everywhere from the given frame on."""

    name, since = "wrong", 0

    def __init__(self, real):
        self.real = real

    def start(self):
        return 0, self.real.start()

    def encode(self, image):
        return self.real.encode(image)

    def decode(self, features, state):
        number, state = state
        outputs, state = self.real.decode(features, state)
        if number >= self.since:
            outputs = self.spoilt(outputs)
        return outputs, (number + 1, state)

    def spoilt(self, outputs):
        return {"mask": (outputs["mask"] + 1) % 124}


class Vanishing(Wrong):
    """It raises from the given frame on."""

    since, error = 10, RuntimeError("CUDA_ERROR_DEVICE_UNAVAILABLE\n  in a long trace")

    def spoilt(self, outputs):
        raise self.error


def test_a_backend_that_computes_something_else_fails(bundle, monkeypatch):
    substitute(monkeypatch, Wrong)
    result = bench(bundle("b0"), QUICK)
    assert not result.passed
    assert {row.verdict for row in result.rows} == {"FAILED"}
    assert result.headline.startswith("FAILED: onnxruntime:cpu fp32 (pixels with the same class, ")


def test_a_state_that_degrades_fails_though_the_first_frames_are_right(bundle, monkeypatch):
    class Late(Wrong):
        since = 50

    substitute(monkeypatch, Late)
    result = bench(bundle("b0"), replace(QUICK, drift=100))
    for row in result.rows:
        assert [check.name for check in row.checks if not check.passed] == [
            "pixels that differ at frame 100"
        ]
    assert not result.passed


def test_a_gpu_that_vanishes_stops_its_row_and_no_other(bundle, monkeypatch):
    substitute(monkeypatch, Vanishing)
    result = bench(bundle("b0"), replace(QUICK, backends=["onnxruntime:cpu", "eager"]))
    rows = rows_of(result)
    assert rows["onnxruntime:cpu fp32"].outcome is Outcome.STOPPED
    assert rows["onnxruntime:cpu fp32"].reason == "at frame 10: CUDA_ERROR_DEVICE_UNAVAILABLE"
    assert rows["eager"].verdict == "reference"
    assert not result.passed


def test_a_mask_that_no_model_makes_stops_its_row(bundle, monkeypatch):
    class Garbage(Wrong):
        def spoilt(self, outputs):
            return {"mask": outputs["mask"][:-1]}

    substitute(monkeypatch, Garbage)
    result = bench(bundle("b0"), replace(QUICK, backends=["onnxruntime:cpu", "eager"]))
    rows = rows_of(result)
    assert rows["onnxruntime:cpu fp32"].outcome is Outcome.STOPPED
    assert rows["eager"].outcome is Outcome.RAN
    assert not result.passed


def test_a_runtime_that_is_broken_is_no_pass_though_others_run(bundle, monkeypatch):
    def broken(real):
        raise ImportError("libcudart.so.13: cannot open shared object file\n  and a trace")

    substitute(monkeypatch, broken)
    result = bench(bundle("b0"), replace(QUICK, backends=["onnxruntime:cpu", "eager"]))
    row = rows_of(result)["onnxruntime:cpu fp32"]
    assert row.outcome is Outcome.STOPPED
    assert row.reason == "at the start: libcudart.so.13: cannot open shared object file"
    assert rows_of(result)["eager"].outcome is Outcome.RAN
    assert not result.passed


def test_a_damaged_graph_fails_and_the_others_still_have_rows(bundle, tmp_path):
    damaged = shutil.copytree(bundle("b0"), tmp_path / "damaged")
    with (damaged / "decoder.fp16.onnx").open("ab") as file:
        file.write(b"!")
    rows = rows_of(result := bench(damaged, QUICK))
    assert rows["onnxruntime:cpu fp32"].verdict == "passed"
    assert rows["onnxruntime:cpu fp16"].outcome is Outcome.STOPPED
    assert "decoder.fp16.onnx" in rows["onnxruntime:cpu fp16"].reason
    assert not result.passed


def test_a_row_that_stops_on_its_long_way_keeps_what_was_measured(bundle, monkeypatch):
    class Late(Vanishing):
        since = 50

    substitute(monkeypatch, Late)
    result = bench(bundle("b0"), replace(QUICK, drift=100))
    for row in result.rows:
        assert row.reason == "on the way to frame 100: CUDA_ERROR_DEVICE_UNAVAILABLE"
        assert row.verdict == "stopped"
        assert len(row.speed.seconds) == QUICK.frames
        assert row.checks
    assert not result.passed


def test_a_footprint_that_cannot_be_taken_is_told_and_costs_no_row(bundle, monkeypatch):
    monkeypatch.setattr(
        benchmarks.bench, "footprint", lambda path, *rest: footprint(path / "gone", *rest)
    )
    result = bench(bundle("b0"), QUICK)
    assert result.passed
    assert "onnxruntime:cpu fp32 ran: memory and start-up were not measured: " in notes(result)[0]
    assert "is no bundle" in notes(result)[0]


def test_a_reference_that_breaks_off_is_a_row_though_nobody_asked_for_it(bundle, monkeypatch):
    class Breaking(Vanishing):
        error = MemoryError()

    real = benchmarks.contenders.reference
    monkeypatch.setattr(
        benchmarks.bench,
        "reference",
        lambda *given: replace(real(*given), create=lambda: Breaking(real(*given).open())),
    )
    result = bench(bundle("b0"), QUICK)
    rows = rows_of(result)
    assert rows["eager"].reason == "at frame 10: MemoryError"
    assert rows["onnxruntime:cpu fp32"].verdict == "not checked"
    assert not result.passed


def test_without_torch_speed_is_measured_and_parity_is_not(bundle, monkeypatch):
    def missing():
        raise MissingExtra('torch is not installed; install it with: pip install "mrcfa[export]"')

    unavailable = Contender("eager", Role.REFERENCE, "fp32", "cpu", missing)
    monkeypatch.setattr(benchmarks.bench, "reference", lambda *_: unavailable)
    result = bench(bundle("b0"), QUICK)
    assert {row.verdict for row in result.rows} == {"not checked"}
    assert "torch is not installed" in result.unchecked
    assert result.status == ""
    assert json.loads(result.to_json_lines().splitlines()[0])["passed"] is None


def test_where_nothing_runs_nothing_passes(bundle, benched):
    result = bench(bundle("b0"), replace(QUICK, backends=["tensorrt"]))
    assert [row.outcome for row in result.rows] == [Outcome.NOT_RUN]
    assert not result.passed
    peer = next(row for row in benched.rows if row.verdict == "another model")
    assert not replace(result, rows=(*result.rows, peer)).passed


def test_a_gpus_row_says_that_the_papers_model_ran_on_the_cpu(benched):
    rows = tuple(
        replace(row, contender=replace(row.contender, device="cuda"))
        if row.contender.role is Role.STREAM
        else row
        for row in benched.rows
    )
    told = replace(benched, rows=rows)
    assert " times as fast as the paper's model on clips on the CPU" in told.headline
    assert any("the paper's model ran on the CPU" in note for note in notes(told))
    assert not any("ran on the CPU" in note for note in notes(benched))


def test_an_engine_has_a_row_with_the_copies_among_its_parts(bundle, monkeypatch, tmp_path):
    driver = fake_gpu.Driver()
    runtime = fake_gpu.fake_tensorrt(driver, "tensorrt_rtx", "1.7.1.116")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", runtime)
    monkeypatch.setattr(benchmarks.contenders, "gpus", lambda: [Gpu("Quadro RTX 6000", 75)])
    monkeypatch.setattr(benchmarks.bench, "environment", lambda threads: {})
    shutil.copytree(bundle("b0"), tmp_path / "bundle")
    opened = Bundle.open(tmp_path / "bundle")
    plans = {
        f"{part}.engine": opened.file(opened.graph("fp16", part).file).read_bytes()
        for part in ("encoder", "decoder")
    }
    engine = Engine("rtx", "1.7.1.116", (75,), "fp16", None, *plans, None)
    opened.with_engine(engine, plans)
    result = bench(tmp_path / "bundle", replace(QUICK, backends=["tensorrt"]))
    (row,) = result.rows
    assert row.name == engine.name
    assert row.verdict == "passed"
    assert row.speed.parts.keys() == {"upload", "encoder", "decoder", "download"}


def test_an_onnxruntime_stream_alone_starts_quickly_and_without_torch(
    bundle, peer_cache, tmp_path, monkeypatch
):
    if sys.version_info >= (3, 11):  # older Pythons look where the user is first, always
        (tmp_path / "benchmarks").mkdir()
        (tmp_path / "benchmarks" / "footprint.py").write_text("raise SystemExit('not this one')")
        monkeypatch.chdir(tmp_path)
    found = footprint(bundle("b0"), "onnxruntime:cpu fp32", 1)
    assert found.start_s < 30  # a shared machine; the report tells the real figure
    assert found.peak_bytes < 300e6  # torch alone takes more


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backends": ["openvino"]}, "unknown backend 'openvino'; choose from eager-clip, eager, "),
        ({"backends": []}, "unknown backend none"),
        ({"warmup": 3}, "--warmup is 3, but the farthest reference lies 9 frames back"),
        ({"frames": 1}, "--frames is 1"),
        ({"threads": -1}, "--threads is -1; use 1 or more"),
        ({"drift": 50}, "--drift is 50, but errors are compared at frames 10, 100, 1000: use 100"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(bundle, changes, words):
    with pytest.raises(MrcfaError, match="^" + words.replace("(", r"\(")):
        bench(bundle("b0"), replace(QUICK, **changes))


def test_the_reference_is_the_eager_backend_itself(bundle):
    opened = Bundle.open(bundle("b0"))
    eager = benchmarks.contenders.reference(opened, threads=1)
    assert eager.open() is open_backend(opened, "eager", threads=1)
