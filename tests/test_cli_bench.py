"""`mrcfa bench` as it is typed: exit codes, files and words."""

import json
import sys
from pathlib import Path

import pytest
from naming import names

import mrcfa.benchmarks.bench
from mrcfa import cli
from mrcfa.machine.hardware import Gpu

QUICK = ("--backends", "onnxruntime:cpu", "--frames", 3, "--drift", 0, "--threads", 1)


@pytest.fixture
def bench(command, monkeypatch):
    """`bench(…)`: the command in an empty folder, its output as text."""
    monkeypatch.setattr(mrcfa.benchmarks.bench, "footprint", lambda *_: None)

    def call(*words):
        code, out, err = command("bench", *words)
        return code, out.decode(), err

    return call


def test_a_benchmark_prints_a_markdown_table_and_writes_report_and_json(bundle, bench):
    code, out, err = bench(bundle("b0"), *QUICK, "--peer", "none", "--json", "bench.jsonl")
    assert (code, err) == (0, "")
    assert out.lstrip().startswith("| backend ")
    assert "| onnxruntime:cpu fp16 |" in out
    assert "uint8 frame in to mask out; 3 frames after a warm-up of 10" in out
    assert "Passed: onnxruntime:cpu fp32, onnxruntime:cpu fp16 match" in out
    assert Path("report.html").read_text().startswith("<!doctype html>")
    kinds = [json.loads(line)["kind"] for line in Path("bench.jsonl").read_text().splitlines()]
    assert kinds[:9] == ["run", *["frame"] * 6, *["row"] * 2]


@pytest.mark.thorough
def test_rows_that_leave_a_gpu_idle_are_told_on_stderr_too(bundle, bench, monkeypatch):
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu("Quadro RTX 6000", 75)])
    words = ("--backends", "onnxruntime:cpu,tensorrt", *QUICK[2:], "--peer", "none")
    code, out, err = bench(bundle("b0"), *words)
    assert code == 0
    assert names(out, "tensorrt", "mrcfa build")
    assert err.startswith("mrcfa: ")
    assert names(err, "tensorrt", "mrcfa build")


def test_a_failed_check_is_exit_code_1(bundle, bench, monkeypatch):
    monkeypatch.setattr("mrcfa.data.metrics.ConfusionMatrix.mean_iou", 0.5)
    code, out, _ = bench(bundle("b0"), *QUICK, "--peer", "none")
    assert code == 1
    assert "mean IoU of masks: 0.5 >= 0.99 FAILED" in out


def test_without_a_name_the_papers_bundle_is_made(bundle, bench, monkeypatch):
    made = []

    def export(size, out):
        made.append((size, str(out)))
        out.parent.mkdir()
        out.symlink_to(bundle("b0"))

    monkeypatch.setattr(cli, "export", export)
    assert bench("--size", "96x160", "--frames", 1)[0] == 2
    assert not made
    for _ in range(2):
        code, _, err = bench("--size", "96x160", "--warmup", 3)
        assert code == 2
        assert names(err, "--warmup", 3, "9 frames")
    assert made == [("96x160", "bundles/vspw-b1-96x160")]


@pytest.mark.thorough
def test_without_matplotlib_there_is_a_table_and_no_report(bundle, bench, monkeypatch):
    monkeypatch.delitem(sys.modules, "mrcfa.benchmarks.report", raising=False)
    monkeypatch.delitem(sys.modules, "mrcfa.benchmarks.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = bench(bundle("b0"), *QUICK, "--peer", "none")
    assert code == 0
    assert "| onnxruntime:cpu fp32 |" in out
    assert names(err, "matplotlib", 'pip install ".[report]"')
    assert not Path("report.html").exists()


@pytest.mark.parametrize("option", ["--json", "--report"])
@pytest.mark.parametrize(
    "place",
    [".", "file/new", "/dev/null"],
)
def test_a_place_that_cannot_be_written_is_named_before_anything_is_measured(
    bundle, bench, monkeypatch, option, place
):
    monkeypatch.setattr("mrcfa.benchmarks.bench.bench", lambda *_: pytest.fail("measured"))
    Path("file").touch()
    code, out, err = bench(bundle("b0"), *QUICK, option, place)
    assert (code, out) == (2, "")
    assert err.startswith("mrcfa: ")
    assert names(err, place)
    assert err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} - {".cache"} == {"file"}  # matplotlib keeps one


@pytest.mark.parametrize(
    ("words", "things"),
    [
        (["nowhere"], ["nowhere"]),
        (["nowhere", "--size", "96x160"], ["nowhere", "--size"]),
        (["nowhere", "--peer", "deeplab"], ["--peer", "deeplab", "segformer", "none"]),
        (["nowhere", "--json", "report.html"], ["--json", "--report", "report.html"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(bench, words, things):
    code, out, err = bench(*words)
    assert (code, out) == (2, "")
    assert names(err, *things)
    assert err.count("\n") == 1
