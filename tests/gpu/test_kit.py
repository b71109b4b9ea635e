"""The kit of `make gpu-test` on a machine that has nothing of it: it says so, and fails nothing."""

import importlib.util
from pathlib import Path

import pytest
from real_gpu import SIMULATED

from mrcfa import machine
from mrcfa.machine import Gpu

spec = importlib.util.spec_from_file_location("kit", Path(__file__).with_name("kit.py"))
kit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kit)


@pytest.fixture
def suite(monkeypatch):
    """The suite does not run itself."""
    monkeypatch.setattr(kit, "pytest_found", lambda *words: kit.Found("3 passed", {"passed": 3}))


def test_without_a_gpu_what_was_not_run_is_told_with_its_reason(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: [])
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
    assert lines["compute-sanitizer"].words == "no GPU is visible here"
    assert "is not built" in lines["C++ against Python"].words


def test_with_a_gpu_but_no_sanitizer_or_plugin_each_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kit.NotRun, match="it comes with the CUDA toolkit"):
        kit._sanitized(tmp_path, tmp_path)
    (tmp_path / "compute-sanitizer").write_text("#!/bin/sh\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setattr(kit, "PLUGIN", kit.ROOT / "nowhere.so")
    with pytest.raises(kit.NotRun, match=r"nowhere\.so is not built"):
        kit._sanitized(tmp_path, tmp_path)


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
    if machine.gpus():
        pytest.skip("not run: there is a GPU here")
    files = [f"tests/mrcfa/backends/{name}.py" for name in ("test_lifetimes", "test_fake_gpu")]
    found = kit.pytest_found(*files, "--gpu", "-p", "no:cacheprovider", "-n", "0")
    assert "passed" not in found.facts
    assert found.facts["skipped"] > 10
    assert found.facts["not_run"] == [SIMULATED, "not run: no GPU is visible here"]


def test_a_selftest_that_does_not_pass_fails_with_its_verdict(tmp_path):
    with pytest.raises(kit.Fault, match="it wrote no report"):
        kit._selftest(tmp_path / "nowhere", tmp_path)
