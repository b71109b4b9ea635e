"""The kit of `make gpu-test` on a machine that has nothing of it: it says so, and fails nothing."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from naming import names, naming
from real_gpu import SIMULATED

from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Engine
from mrcfa.machine import hardware
from mrcfa.machine.hardware import Gpu

spec = importlib.util.spec_from_file_location("kit", Path(__file__).with_name("kit.py"))
kit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kit)


@pytest.fixture
def suite(monkeypatch):
    """The suite does not run itself."""
    monkeypatch.setattr(kit, "pytest_found", lambda *words: kit.Found("3 passed", {"passed": 3}))


def test_without_a_gpu_what_was_not_run_is_told_with_its_reason(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    monkeypatch.setattr(kit, "CPP", kit.ROOT / "nowhere")
    monkeypatch.setattr(kit, "_selftest", lambda bundle, folder: kit.Found("Passed"))
    lines = {line.check: line for line in kit.steps(tmp_path, tmp_path)}
    assert {check: line.outcome.value for check, line in lines.items()} == {
        "suite": "works",
        "suite on the GPU": "not run",
        "engines": "not run",
        "compute-sanitizer": "not run",
        "C++ against Python": "not run",
        "selftest": "works",
    }
    assert names(lines["compute-sanitizer"].words, "GPU")
    assert names(lines["C++ against Python"].words, "nowhere")


def test_with_a_gpu_but_no_sanitizer_or_plugin_each_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kit.NotRun, match=naming("compute-sanitizer")):
        kit._sanitized(tmp_path, tmp_path)
    (tmp_path / "compute-sanitizer").write_text("#!/bin/sh\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setattr(kit, "PLUGIN", kit.ROOT / "nowhere.so")
    with pytest.raises(kit.NotRun, match=naming("nowhere.so")):
        kit._sanitized(tmp_path, tmp_path)


PLANS = {"encoder.engine": b"encoder", "decoder.engine": b"decoder"}
ENGINE = Engine("rtx", "1.7.1.116", (89,), "fp16", "fp16", "mrcfa", *PLANS)
LINE = kit.Line(ENGINE.name, "masks", kit.Outcome.WORKS, "as they should be")
SANITIZER = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
(folder / "command.json").write_text(json.dumps(sys.argv[1:]))
pathlib.Path(sys.argv[-2]).write_text((folder / "answers").read_text())
sys.exit({code})
"""


@pytest.fixture
def sanitized(bundle, suite, tmp_path, monkeypatch):
    """`sanitized(lines, code)`: the kit's word on a GPU machine whose compute-sanitizer sees them.

    TensorRT's build with the plugin, which nothing here can do, is a double.
    """
    program, real = tmp_path / "compute-sanitizer", kit.output_of
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setattr(kit, "PLUGIN", program)
    for step in ("_built", "_cpp", "_selftest"):
        monkeypatch.setattr(kit, step, lambda *_: kit.Found("not the point"))

    def output_of(command, environment):
        assert environment == {"MRCFA_PLUGIN_LIBRARY": str(program)}
        if command[0] == str(program):
            return real(command, environment=environment)
        *_, verb, copy, option, choice = command
        assert (verb, option, choice) == ("build", "--plugin", "always")
        Bundle.open(Path(copy)).with_engine(ENGINE, PLANS)
        return b""

    def told(lines, code=0):
        program.write_text(SANITIZER.format(python=sys.executable, code=code))
        program.chmod(0o755)
        answers = "".join(json.dumps(line.to_json()) + "\n" for line in lines)
        (tmp_path / "answers").write_text(answers)
        (tmp_path / "folder").mkdir()
        monkeypatch.setattr(kit, "output_of", output_of)
        steps = {line.check: line for line in kit.steps(bundle("b0"), tmp_path / "folder")}
        return steps["compute-sanitizer"]

    return told


def test_what_compute_sanitizer_found_no_error_in_is_recorded(sanitized, tmp_path):
    idle = replace(LINE, check="second GPU", outcome=kit.Outcome.NOT_RUN)
    line = sanitized([LINE, replace(LINE, check="reset"), idle])
    assert line.outcome is kit.Outcome.WORKS
    assert names(line.words, ENGINE.name, "masks", "reset")
    assert line.facts == {"ran": ["masks", "reset"]}
    *_, module, copy, engine, _, gpus = json.loads((tmp_path / "command.json").read_text())
    assert (module, engine, gpus) == ("mrcfa.selftest.stream_checks", ENGINE.name, "1")
    assert Bundle.open(Path(copy)).manifest.engines == (ENGINE,)


def test_what_compute_sanitizer_complains_of_fails(sanitized):
    line = sanitized([LINE], code=7)
    assert line.outcome is kit.Outcome.FAILS
    assert names(line.words, "exit code 7")


def test_a_check_that_fails_under_compute_sanitizer_fails(sanitized):
    line = sanitized([replace(LINE, outcome=kit.Outcome.FAILS, words="another mask")])
    assert (line.outcome, line.words) == (kit.Outcome.FAILS, "another mask")


def test_where_nothing_ran_under_compute_sanitizer_nothing_passed(sanitized):
    line = sanitized([replace(LINE, outcome=kit.Outcome.NOT_RUN, words="no engine opens")])
    assert (line.outcome, line.words) == (kit.Outcome.NOT_RUN, "no engine opens")


def test_tests_that_fail_fail_the_step_and_skipped_ones_are_named(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_idle(): pytest.skip('not run: no GPU is visible here')\n"
    )
    found = kit.pytest_found(str(tmp_path), "-p", "no:cacheprovider")
    assert found.facts["passed"] == 1
    assert found.words == "1 passed, 1 skipped; not run: no GPU is visible here"
    (tmp_path / "test_it.py").write_text("def test_bad(): assert 1 == 2\n")
    with pytest.raises(kit.Fault, match="1 failed") as failed:
        kit.pytest_found(str(tmp_path), "-p", "no:cacheprovider")
    assert any("assert 1 == 2" in line for line in failed.value.facts["tail"])


def test_where_there_is_no_gpu_the_suite_on_the_gpu_says_so_and_passes_nothing(tmp_path):
    if hardware.gpus():
        pytest.skip("not run: there is a GPU here")
    files = [f"tests/mrcfa/backends/{name}.py" for name in ("test_lifetimes", "test_fake_gpu")]
    found = kit.pytest_found(*files, "--gpu", "-p", "no:cacheprovider", "-n", "0")
    assert "passed" not in found.facts
    assert found.facts["skipped"] > 10
    assert found.facts["not_run"] == [SIMULATED, "not run: no GPU is visible here"]


def test_a_selftest_that_does_not_pass_fails_with_its_verdict(tmp_path):
    with pytest.raises(kit.Fault, match=naming("report")):
        kit._selftest(tmp_path / "nowhere", tmp_path)
