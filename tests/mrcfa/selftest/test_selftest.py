"""`mrcfa selftest` on a machine without a GPU, and what it says of broken bundles and runtimes."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
from naming import naming
from onnx import numpy_helper

from mrcfa.bundle import EXPECTED, MANIFEST, Bundle
from mrcfa.bundle.manifest import FileEntry
from mrcfa.errors import Damaged
from mrcfa.machine import hardware
from mrcfa.machine.drivers import CudaNeed
from mrcfa.machine.files import sha256
from mrcfa.machine.hardware import Gpu
from mrcfa.selftest import selftest as room
from mrcfa.selftest.expected import WARM_UP, Expected
from mrcfa.selftest.line import Outcome
from mrcfa.selftest.processes import lines_of, python
from mrcfa.selftest.selftest import passed, selftest, verdict
from mrcfa.selftest.ways import in_order, ways


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch, tmp_path):
    """Whatever the machine has, and whatever was compiled in the clone."""
    monkeypatch.setattr("mrcfa.selftest.processes.CLONE", tmp_path / "clone")
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    monkeypatch.setattr(hardware, "cuda_driver", lambda: None)


@pytest.fixture
def copy(bundle, tmp_path):
    """A bundle that a test may damage."""
    path = tmp_path / "bundle"
    shutil.copytree(bundle("b0"), path)
    return path


@pytest.fixture
def only(monkeypatch):
    """`only("onnxruntime:cpu fp32")`: the other ways would take seconds and show nothing more."""

    def keep(*names):
        everything = room.ways
        monkeypatch.setattr(
            room, "ways", lambda bundle: [way for way in everything(bundle) if way.name in names]
        )

    return keep


def rehashed(path, *names):
    """The manifest again true of files that were changed."""
    opened = Bundle.open(path)
    files = dict(opened.manifest.files)
    for name in names:
        files[name] = FileEntry(sha256(path / name), (path / name).stat().st_size)
    manifest = replace(opened.manifest, files=files)
    (path / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return Bundle.open(path)


def found(lines):
    return {(line.subject, line.check): line for line in lines}


def test_without_a_gpu_what_can_run_works_and_the_rest_says_why_not(bundle, command, tmp_path):
    code, out, err = command("selftest", bundle("b0"), "--json", "selftest.json")
    assert (code, err) == (0, "")
    told = out.decode()
    for line in (
        "✓ bundle                         files            works: 6 files",
        "- machine                        GPU              not run: ",
        "- onnxruntime:cuda fp16          masks            not run: ",
        "- onnxruntime:webgpu fp16        masks            not run: ",
        "- TensorRT                       engines          not run: ",
        "✓ onnxruntime:cpu fp32           reset            works: ",
        "✓ eager                          masks            works: 100.000% ",
        "✓ onnxruntime:cpu fp16           exit             works: ",
        "Passed: onnxruntime:cpu fp32, onnxruntime:cpu fp16, eager ",
    ):
        assert line in told
    report = json.loads((tmp_path / "selftest.json").read_text())
    assert report["passed"] is True
    assert report["complete"] is True
    assert report["bundle"]["config"]["backbone"] == "b0"
    assert report["environment"].keys() >= {"date", "mrcfa", "processor", "onnxruntime", "system"}
    lines = {(line["subject"], line["check"]): line for line in report["lines"]}
    facts = lines["onnxruntime:cpu fp32", "masks"]["facts"]
    assert facts["value"] >= facts["threshold"] == 0.999
    assert facts["frames"] == 12
    assert len(report["lines"]) == told.count("works:") + told.count("not run:")


def test_the_time_per_frame_leaves_out_frames_in_which_graphs_are_recorded(bundle):
    opened = Bundle.open(bundle("b0"))
    expected, limits = Expected.of(opened), opened.manifest.variants["fp32"].limits
    seconds = [9.0] * WARM_UP + [0.25, 0.75]
    assert expected.agreement(expected.masks, limits, seconds).facts["ms_per_frame"] == 500
    for untimed in ((), seconds[:WARM_UP]):
        assert "ms_per_frame" not in expected.agreement(expected.masks, limits, untimed).facts


def test_a_check_that_hangs_loses_no_earlier_result(bundle, command, only, monkeypatch, tmp_path):
    only()

    def hanging(bundle, tool):
        report = json.loads((tmp_path / "selftest.json").read_text())
        assert (report["complete"], report["passed"]) == (False, False)
        assert [line["check"] for line in report["lines"][:3]] == ["files", "CUDA driver", "GPU"]
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "cpp_line", hanging)
    code, _, _ = command("selftest", bundle("b0"), "--json", "selftest.json")
    assert code == 130
    assert len(json.loads((tmp_path / "selftest.json").read_text())["lines"]) > 3


def test_the_gpus_answers_come_before_slow_ways_to_run_on_a_cpu(bundle):
    def way(name, precision, cuda):
        return replace(
            next(ways(Bundle.open(bundle("b0")))), name=name, precision=precision, cuda=cuda
        )

    cpu, fp16, eight = (
        way("cpu", "fp32", False),
        way("fp16", "fp16", False),
        way("8", "int8", False),
    )
    engine, eight_on_gpu = way("engine", "fp16", True), way("8 on a GPU", "int8", True)
    listed = [eight, fp16, eight_on_gpu, engine, cpu]
    assert in_order(listed) == [cpu, eight_on_gpu, engine, eight, fp16]
    assert [each.name for each in listed if each.emulated] == ["8"]


def test_a_flipped_weight_byte_with_a_true_hash_fails_by_agreement(copy, command, only):
    only("onnxruntime:cpu fp32")
    graph = onnx.load(copy / "encoder.onnx")
    weight = max(graph.graph.initializer, key=lambda each: np.prod(each.dims))
    values = numpy_helper.to_array(weight).copy()
    number = values.reshape(-1)[np.abs(values).argmax() :][:1]
    number.view(np.uint8)[-1] ^= 0x40  # an exponent's highest bit, in the last byte
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(graph, copy / "encoder.onnx")
    rehashed(copy, "encoder.onnx")
    code, out, _ = command("selftest", copy)
    assert code == 1
    (line,) = (line for line in out.decode().splitlines() if line.startswith("✗"))
    assert "onnxruntime:cpu fp32           masks            does not: " in line
    assert "99.9%" in line
    assert "FAILED: onnxruntime:cpu fp32 (masks)." in out.decode()


def test_a_file_that_was_changed_is_named(copy, only):
    only()
    (copy / "decoder.onnx").write_bytes(b"something else")
    lines = list(selftest(Bundle.open(copy)))
    assert found(lines)["bundle", "files"].outcome is Outcome.FAILS
    assert "decoder.onnx" in found(lines)["bundle", "files"].words
    assert "FAILED: bundle (files)" in verdict(lines)
    assert not passed(lines)


@pytest.mark.parametrize(
    ("content", "things"),
    [
        (b"no archive", ()),
        ({"answers": np.zeros(3)}, ("masks",)),
        ({"masks": np.zeros((12, 8, 8), np.uint8)}, ((12, 8, 8), "96x160")),
        ({"masks": np.zeros((12, 96, 160), np.float32)}, ("float32",)),
        ({"masks": np.zeros((12, 96, 160), np.uint8), "frames": np.arange(3)}, (12, 3)),
    ],
)
def test_damaged_answers_are_a_sentence(copy, content, things):
    if isinstance(content, bytes):
        (copy / EXPECTED).write_bytes(content)
    else:
        np.savez_compressed(copy / EXPECTED, **content)
    opened = rehashed(copy, EXPECTED)
    way = next(way for way in ways(opened) if way.name == "onnxruntime:cpu fp32")
    (line,) = lines_of(opened, way, 0)
    assert (line.check, line.outcome) == ("masks", Outcome.FAILS)
    assert re.search(naming(copy / EXPECTED, *things), line.words)
    with pytest.raises(Damaged, match=naming(copy / EXPECTED, *things)):
        Expected.of(opened)


def test_a_runtime_that_crashes_costs_its_own_lines_and_no_others(
    copy, tmp_path, monkeypatch, only
):
    only("onnxruntime:cpu fp32", "eager")
    (tmp_path / "site" / "onnxruntime").mkdir(parents=True)
    (tmp_path / "site" / "onnxruntime" / "__init__.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    lines = found(selftest(Bundle.open(copy)))
    crashed = lines["onnxruntime:cpu fp32", "exit"]
    assert crashed.outcome is Outcome.FAILS
    assert "SIGABRT" in crashed.words
    assert "--json" in crashed.remedy
    assert lines["eager", "masks"].outcome is Outcome.WORKS
    assert not passed(list(lines.values()))


def test_its_processes_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch):
    tell = ("-c", "import os; print(os.environ['OMP_WAIT_POLICY'])")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert python(*tell) == "passive\n"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert python(*tell) == "active\n"


def test_where_nothing_can_run_the_test_is_not_passed(copy, only, command):
    only("onnxruntime:cuda fp16")
    code, out, _ = command("selftest", copy)
    assert code == 1
    assert "\nFAILED: " in out.decode()


def test_a_gpu_on_which_nothing_ran_is_a_failure(copy, only, monkeypatch):
    only()
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    line = found(selftest(Bundle.open(copy)))["machine", "GPU at work"]
    assert line.outcome is Outcome.FAILS
    assert "NVIDIA L4" in line.words
    assert f"mrcfa build {copy}" in line.remedy


def test_a_driver_that_is_too_old_for_a_wheel_is_told_with_both_ways_out(copy, only, monkeypatch):
    only()
    needs = [CudaNeed("tensorrt-rtx-cu13 1.7.1", "13.0", "update the driver, or …")]
    monkeypatch.setattr(room, "cuda_needs", lambda: needs)
    monkeypatch.setattr(hardware, "cuda_driver", lambda: "12.4")
    line = found(selftest(Bundle.open(copy)))["machine", "CUDA driver"]
    assert line.outcome is Outcome.FAILS
    assert re.search(naming("12.4", "tensorrt-rtx-cu13 1.7.1", "13.0"), line.words)
    assert line.remedy == "update the driver, or …"
    monkeypatch.setattr(hardware, "cuda_driver", lambda: "13.0")
    line = found(selftest(Bundle.open(copy)))["machine", "CUDA driver"]
    assert line.outcome is Outcome.WORKS
    assert re.search(naming("13.0", "tensorrt-rtx-cu13 1.7.1"), line.words)


def test_a_place_where_no_report_can_be_written_is_told_before_the_work(bundle, command):
    code, out, err = command("selftest", bundle("b0"), "--json", "/proc/nowhere.json")
    assert (code, out) == (2, b"")
    assert "/proc/nowhere.json" in err


def test_a_cpp_tool_that_is_not_there_is_told(copy, only, tmp_path):
    only()
    lines = found(selftest(Bundle.open(copy), tmp_path / "mrcfa-segment"))
    line = lines["C++ mrcfa-segment", "masks"]
    assert line.outcome is Outcome.FAILS
    assert str(tmp_path / "mrcfa-segment") in line.words
    assert "--cpp-tool" in line.remedy
