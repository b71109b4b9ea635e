"""`bench` where something breaks or is wrong: it is told, and nothing passes that should not."""

import json
import shutil
from dataclasses import replace

import pytest
from naming import names, naming

import mrcfa.benchmarks.bench
import mrcfa.benchmarks.contenders
from mrcfa.backends import Backend
from mrcfa.benchmarks.bench import bench
from mrcfa.benchmarks.contenders import Contender, Role, contenders
from mrcfa.benchmarks.footprint import footprint
from mrcfa.benchmarks.result import Outcome, Verdict
from mrcfa.benchmarks.table import notes
from mrcfa.bundle.manifest import Device
from mrcfa.errors import InvalidValue
from mrcfa.export.variants import FP32_LIMITS
from mrcfa.machine.extras import MissingExtra


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

    monkeypatch.setattr(mrcfa.benchmarks.bench, "contenders", substituted)


class Wrong(Backend):
    """Its masks are another class everywhere from the given frame on."""

    name, since = "wrong", 0

    def __init__(self, real):
        self.real = real

    def start(self):
        return 0, self.real.start()

    def timed_step(self, image, state):
        number, state = state
        outputs, state, seconds = self.real.timed_step(image, state)
        if number >= self.since:
            outputs = self.spoilt(outputs)
        return outputs, (number + 1, state), seconds

    def spoilt(self, outputs):
        return {"mask": (outputs["mask"] + 1) % 124}


class Vanishing(Wrong):
    """It raises from the given frame on."""

    since, error = 10, RuntimeError("CUDA_ERROR_DEVICE_UNAVAILABLE\n  in a long trace")

    def spoilt(self, outputs):
        raise self.error


def test_a_backend_that_computes_something_else_fails(bundle, monkeypatch, quick):
    substitute(monkeypatch, Wrong)
    result = bench(bundle("b0"), quick)
    assert not result.passed
    assert {row.verdict for row in result.rows} == {"FAILED"}
    assert result.headline.startswith("FAILED: onnxruntime:cpu fp32 (pixels with the same class, ")


def test_a_state_that_degrades_fails_though_the_first_frames_are_right(bundle, monkeypatch, far):
    class Late(Wrong):
        since = 15

    substitute(monkeypatch, Late)
    result = bench(bundle("b0"), far)
    for row in result.rows:
        assert [check.name for check in row.checks if not check.passed] == [
            "pixels that differ at frame 40"
        ]
    assert not result.passed


def test_a_gpu_that_vanishes_stops_its_row_and_no_other(bundle, monkeypatch, quick, rows_of):
    substitute(monkeypatch, Vanishing)
    result = bench(bundle("b0"), replace(quick, backends=["onnxruntime:cpu", "eager"]))
    rows = rows_of(result)
    assert rows["onnxruntime:cpu fp32"].outcome is Outcome.STOPPED
    reason = rows["onnxruntime:cpu fp32"].reason
    assert names(reason, "frame 10", "CUDA_ERROR_DEVICE_UNAVAILABLE")
    assert "trace" not in reason
    assert rows["eager"].verdict == "reference"
    assert not result.passed


@pytest.mark.thorough
def test_a_mask_that_no_model_makes_stops_its_row(bundle, monkeypatch, quick, rows_of):
    class Garbage(Wrong):
        def spoilt(self, outputs):
            return {"mask": outputs["mask"][:-1]}

    substitute(monkeypatch, Garbage)
    result = bench(bundle("b0"), replace(quick, backends=["onnxruntime:cpu", "eager"]))
    rows = rows_of(result)
    assert rows["onnxruntime:cpu fp32"].outcome is Outcome.STOPPED
    assert rows["eager"].outcome is Outcome.RAN
    assert not result.passed


def test_a_runtime_that_is_broken_is_no_pass_though_others_run(bundle, monkeypatch, quick, rows_of):
    def broken(real):
        raise ImportError("libcudart.so.13: cannot open shared object file\n  and a trace")

    substitute(monkeypatch, broken)
    result = bench(bundle("b0"), replace(quick, backends=["onnxruntime:cpu", "eager"]))
    row = rows_of(result)["onnxruntime:cpu fp32"]
    assert row.outcome is Outcome.STOPPED
    assert names(row.reason, "libcudart.so.13")
    assert "trace" not in row.reason
    assert rows_of(result)["eager"].outcome is Outcome.RAN
    assert not result.passed


def test_a_damaged_graph_fails_and_the_others_still_have_rows(bundle, tmp_path, quick, rows_of):
    damaged = shutil.copytree(bundle("b0"), tmp_path / "damaged")
    with (damaged / "decoder.fp16.onnx").open("ab") as file:
        file.write(b"!")
    rows = rows_of(result := bench(damaged, quick))
    assert rows["onnxruntime:cpu fp32"].verdict == "passed"
    assert rows["onnxruntime:cpu fp16"].outcome is Outcome.STOPPED
    assert "decoder.fp16.onnx" in rows["onnxruntime:cpu fp16"].reason
    assert not result.passed


@pytest.mark.thorough
def test_a_row_that_stops_on_its_long_way_keeps_what_was_measured(bundle, monkeypatch, far):
    class Late(Vanishing):
        since = 15

    substitute(monkeypatch, Late)
    result = bench(bundle("b0"), far)
    for row in result.rows:
        assert names(row.reason, "frame 40", "CUDA_ERROR_DEVICE_UNAVAILABLE")
        assert row.verdict == "stopped"
        assert len(row.speed.seconds) == far.frames
        assert row.checks
    assert not result.passed


@pytest.mark.thorough
def test_a_footprint_that_cannot_be_taken_is_told_and_costs_no_row(bundle, monkeypatch, quick):
    monkeypatch.setattr(
        mrcfa.benchmarks.bench, "footprint", lambda path, *rest: footprint(path / "gone", *rest)
    )
    result = bench(bundle("b0"), quick)
    assert result.passed
    assert names(notes(result)[0], "onnxruntime:cpu fp32", bundle("b0") / "gone")


@pytest.mark.thorough
def test_a_reference_that_breaks_off_is_a_row_though_nobody_asked_for_it(
    bundle, monkeypatch, quick, rows_of
):
    class Breaking(Vanishing):
        error = MemoryError()

    real = mrcfa.benchmarks.contenders.reference
    monkeypatch.setattr(
        mrcfa.benchmarks.bench,
        "reference",
        lambda *given: replace(real(*given), create=lambda: Breaking(real(*given).open())),
    )
    result = bench(bundle("b0"), quick)
    rows = rows_of(result)
    assert names(rows["eager"].reason, "frame 10", "MemoryError")
    assert rows["onnxruntime:cpu fp32"].verdict == "not checked"
    assert not result.passed


def test_without_torch_speed_is_measured_and_parity_is_not(bundle, monkeypatch, quick):
    def missing():
        raise MissingExtra('torch is not installed; install it with: pip install ".[export]"')

    unavailable = Contender("eager", Role.REFERENCE, Device.CPU, FP32_LIMITS, missing)
    monkeypatch.setattr(mrcfa.benchmarks.bench, "reference", lambda *_: unavailable)
    result = bench(bundle("b0"), quick)
    assert {row.verdict for row in result.rows} == {"not checked"}
    assert names(result.unchecked, "torch")
    assert result.verdict is Verdict.NOT_CHECKED
    assert json.loads(result.to_json_lines().splitlines()[0])["passed"] is None


def test_where_nothing_runs_nothing_passes(bundle, benched, quick):
    result = bench(bundle("b0"), replace(quick, backends=["tensorrt"]))
    assert [row.outcome for row in result.rows] == [Outcome.NOT_RUN]
    assert not result.passed
    peer = next(row for row in benched.rows if row.verdict == "another model")
    assert not replace(result, rows=(*result.rows, peer)).passed


@pytest.mark.parametrize(
    ("changes", "things"),
    [
        ({"backends": ["caffe"]}, ["'caffe'", "eager-clip", "eager", "onnxruntime:cpu"]),
        ({"backends": []}, ["none", "eager-clip", "eager", "onnxruntime:cpu"]),
        ({"warmup": 3}, ["--warmup", 3, "9 frames"]),
        ({"frames": 1}, ["--frames", 1]),
        ({"threads": -1}, ["--threads", "is -1", "1 or more"]),
        ({"drift": 50}, ["--drift", 50, 10, 100, 1000]),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(bundle, changes, things, quick):
    with pytest.raises(InvalidValue, match=naming(*things)):
        bench(bundle("b0"), replace(quick, **changes))
