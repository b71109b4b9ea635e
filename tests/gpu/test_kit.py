"""The kit of `make gpu-test` on a machine without a GPU: it says what was not run, and why."""

import importlib.util
import json
import os
import sys
import time
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
sys.modules["kit"] = kit  # dataclasses look their module up
spec.loader.exec_module(kit)

WORKS, FAILS, NOT_RUN = kit.Outcome.WORKS, kit.Outcome.FAILS, kit.Outcome.NOT_RUN
GPU_STEPS = (
    "engines",
    "selftest of engines",
    "suite on the GPU",
    *(f"{tool} of the plugin" for tool in ("memcheck", "racecheck", "synccheck")),
)


def step(name, check, limit_s=30.0):
    return kit.Step(name, limit_s, check)


def working(*_):
    return kit.Found("fine")


def read(path):
    content = json.loads(path.read_text())
    return content, {each["check"]: each for each in content["steps"]}


def test_selftest_is_first_and_every_step_has_a_limit():
    assert kit.STEPS[0].name == "selftest"
    assert all(0 < each.limit_s <= 3600 for each in kit.STEPS)


@pytest.mark.thorough
def test_the_json_has_selftests_report_and_every_gpu_step_as_not_run(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", list)
    steps = [each for each in kit.STEPS if each.name in ("selftest", *GPU_STEPS)]
    monkeypatch.setattr(kit, "STEPS", steps)
    target = tmp_path / "gpu-test.json"
    assert kit.main([str(bundle("b0")), "--json", str(target)]) == 0
    content, found = read(target)
    assert (content["kind"], content["passed"], content["complete"]) == ("gpu-test", True, True)
    assert found["selftest"]["facts"]["report"]["kind"] == "selftest"
    assert {name: found[name]["outcome"] for name in GPU_STEPS} == dict.fromkeys(
        GPU_STEPS, NOT_RUN.value
    )
    assert {finding["name"] for finding in content["machine"]} >= {"processor", "GPU"}


def test_the_json_is_written_anew_after_each_step(bundle, tmp_path, monkeypatch):
    target = tmp_path / "gpu-test.json"

    def looking(*_):
        content, found = read(target)
        assert found["first"]["outcome"] == WORKS.value
        assert (found["second"]["outcome"], content["complete"]) == (NOT_RUN.value, False)
        return kit.Found("the first answer was there")

    monkeypatch.setattr(kit, "STEPS", (step("first", working), step("second", looking)))
    assert kit.main([str(bundle("b0")), "--json", str(target)]) == 0
    assert read(target)[1]["second"]["outcome"] == WORKS.value


def test_a_step_that_hangs_is_stopped_with_all_its_processes(bundle, tmp_path, monkeypatch):
    started = tmp_path / "started"
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(started)!r}).write_text(str(child.pid))\n"
        "print('compiling', flush=True); time.sleep(600)"
    )

    def hanging(bundle, folder, limit_s):
        kit.succeeded((sys.executable, "-c", code), limit_s)
        return kit.Found("never")

    steps = (step("slow", hanging, limit_s=2.0), step("next", working))
    monkeypatch.setattr(kit, "STEPS", steps)
    target = tmp_path / "gpu-test.json"
    assert kit.main([str(bundle("b0")), "--json", str(target)]) == 1
    content, found = read(target)
    assert (found["slow"]["outcome"], found["next"]["outcome"]) == (FAILS.value, WORKS.value)
    assert (content["passed"], content["complete"]) == (False, True)
    assert found["slow"]["facts"]["tail"] == ["compiling"]
    child = int(started.read_text())
    for _ in range(100):
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(") ")[2][0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {child} is still there")


def test_ctrl_c_keeps_what_was_found(bundle, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    steps = (step("first", working), step("second", interrupted), step("third", working))
    monkeypatch.setattr(kit, "STEPS", steps)
    target = tmp_path / "gpu-test.json"
    kit.main([str(bundle("b0")), "--json", str(target)])
    content, found = read(target)
    assert [each["outcome"] for each in found.values()] == ["works", "not run", "not run"]
    assert content["complete"] is False


ENGINE_FILES = {"encoder.engine": b"encoder", "decoder.engine": b"decoder"}
ENGINE = Engine("rtx", "1.7.1.116", (89,), "fp16", "fp16", "mrcfa", *ENGINE_FILES)
LINE = kit.Line(ENGINE.name, "masks", WORKS, "as they should be")
SANITIZER = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
(folder / "command.json").write_text(json.dumps(sys.argv[1:]))
pathlib.Path(sys.argv[-2]).write_text((folder / "answers").read_text())
sys.exit({code})
"""


@pytest.fixture
def sanitized(bundle, tmp_path, monkeypatch):
    """`sanitized(lines, code, tool)`: the kit's line on a GPU machine with this compute-sanitizer.

    TensorRT's build with the plugin, which no machine without a GPU can do, is a double.
    """
    program, real = tmp_path / "compute-sanitizer", kit.output_of
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setattr(kit, "ROOT", tmp_path)
    monkeypatch.setattr(kit, "PLUGIN", program)

    def output_of(command, limit_s, environment):
        assert environment == {"MRCFA_PLUGIN_LIBRARY": str(program)}
        if command[0] == str(program):
            return real(command, limit_s, environment)
        *_, verb, copy, option, choice = command
        assert (verb, option, choice) == ("build", "--plugin", "always")
        Bundle.open(copy).with_engine(ENGINE, ENGINE_FILES)
        return kit.subprocess.CompletedProcess(command, 0, "")

    def reported(lines, code=0, tool="racecheck"):
        program.write_text(SANITIZER.format(python=sys.executable, code=code))
        program.chmod(0o755)
        answers = "".join(json.dumps(line.to_json()) + "\n" for line in lines)
        (tmp_path / "answers").write_text(answers)
        (tmp_path / "folder").mkdir()
        monkeypatch.setattr(kit, "output_of", output_of)
        return kit.line(step(tool, kit.sanitizer(tool)), bundle("b0"), tmp_path / "folder")

    return reported


def test_checks_that_pass_under_compute_sanitizer_are_recorded(sanitized, tmp_path):
    idle = replace(LINE, check="second GPU", outcome=NOT_RUN)
    line = sanitized([LINE, replace(LINE, check="reset"), idle])
    assert (line.outcome, line.facts) == (WORKS, {"ran": ["masks", "reset"]})
    tool, name, *_, module, copy, engine, _, gpus = json.loads(
        (tmp_path / "command.json").read_text()
    )
    assert (tool, name) == ("--tool", "racecheck")
    assert (module, engine, gpus) == ("mrcfa.selftest.stream_checks", ENGINE.name, "1")
    assert Bundle.open(copy).manifest.engines == (ENGINE,)


@pytest.mark.parametrize("tool", kit.SANITIZERS)
def test_compute_sanitizer_watches_the_plugins_kernels_and_no_api_errors(tool, sanitized, tmp_path):
    assert sanitized([LINE], tool=tool).outcome is WORKS
    told = json.loads((tmp_path / "command.json").read_text())
    options = dict(zip(told[::2], told[1::2], strict=False))
    assert options["--kernel-name"] == "kernel_substring=mrcfa"
    assert options["--launch-timeout"] == "0"
    assert options.get("--report-api-errors") == ("no" if tool == "memcheck" else None)


def test_an_error_that_compute_sanitizer_finds_fails(sanitized):
    line = sanitized([LINE], code=7)
    assert line.outcome is FAILS
    assert names(line.words, "compute-sanitizer", 7)


def test_a_check_that_fails_under_compute_sanitizer_fails(sanitized):
    line = sanitized([replace(LINE, outcome=FAILS, words="another mask")])
    assert (line.outcome, line.words) == (FAILS, "another mask")


def test_where_nothing_ran_under_compute_sanitizer_nothing_passed(sanitized):
    line = sanitized([replace(LINE, outcome=NOT_RUN, words="no engine opens")])
    assert (line.outcome, line.words) == (NOT_RUN, "no engine opens")


def test_a_missing_sanitizer_compiler_or_plugin_is_named(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kit.sys, "prefix", str(tmp_path))
    memcheck = kit.sanitizer("memcheck")
    with pytest.raises(kit.NotRun, match=naming("nvidia-cuda-sanitizer-api")):
        memcheck(Bundle.open(bundle("b0")), tmp_path, 1.0)
    with pytest.raises(kit.NotRun, match=naming("nvcc", "cmake")):
        kit.plugin(Bundle.open(bundle("b0")), tmp_path, 1.0)
    wheel = tmp_path / "lib/python3.12/site-packages/nvidia/cu13/bin"
    wheel.mkdir(parents=True)
    (wheel / "compute-sanitizer").touch()
    monkeypatch.setattr(kit, "PLUGIN", kit.ROOT / "nowhere.so")
    with pytest.raises(kit.NotRun, match=naming("nowhere.so")):
        memcheck(Bundle.open(bundle("b0")), tmp_path, 1.0)


def test_tests_that_fail_fail_the_step_and_skipped_ones_are_named(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_idle(): pytest.skip('not run: no GPU is visible here')\n"
    )
    found = kit.pytest_found(60.0, str(tmp_path), "-p", "no:cacheprovider")
    assert found.facts["passed"] == 1
    assert found.words == "1 passed, 1 skipped; not run: no GPU is visible here"
    (tmp_path / "test_it.py").write_text("def test_bad(): assert 1 == 2\n")
    with pytest.raises(kit.Fault, match="1 failed") as failed:
        kit.pytest_found(60.0, str(tmp_path), "-p", "no:cacheprovider")
    assert any("assert 1 == 2" in line for line in failed.value.facts["tail"])


def test_the_suite_sees_no_gpu_and_the_step_says_so(tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text(
        "import os\ndef test_hidden(): assert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"
    )
    monkeypatch.setattr(kit, "_SUITE", (str(tmp_path), "-p", "no:cacheprovider"))
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA L4", 89)])
    assert names(kit.suite(None, tmp_path, 60.0).words, "1 passed", "GPUs", "hidden")
    monkeypatch.setattr(hardware, "gpus", list)
    assert kit.suite(None, tmp_path, 60.0).words == "1 passed"


@pytest.mark.thorough
def test_without_a_gpu_the_suite_on_the_gpu_passes_nothing():
    if hardware.gpus():
        pytest.skip("not run: there is a GPU here")
    files = [f"tests/mrcfa/backends/{name}.py" for name in ("test_lifetimes", "test_fake_gpu")]
    found = kit.pytest_found(120.0, *files, "--gpu", "-p", "no:cacheprovider", "-n", "0")
    assert "passed" not in found.facts
    assert found.facts["skipped"] > 10
    assert found.facts["not_run"] == [SIMULATED, "not run: no GPU is visible here"]


def test_a_selftest_that_hangs_fails_with_what_it_had_found(bundle, tmp_path, monkeypatch):
    def hanging(command, limit_s):
        Path(command[-1]).write_text('{"complete": false, "lines": ["files"]}')
        raise kit.Fault("it did not end within 25 minutes", "look", tail=[])

    monkeypatch.setattr(kit, "output_of", hanging)
    line = kit.line(step("selftest", kit.selftest), bundle("b0"), tmp_path)
    assert (line.outcome, line.facts["report"]["lines"]) == (FAILS, ["files"])


@pytest.fixture
def selftested(bundle, tmp_path, monkeypatch):
    """`selftested(failed, engines, check)`: the kit's line where these checks of selftest fail."""

    def line(failed, engines=(), check=kit.first_selftest):
        lines = [{"check": each, "outcome": FAILS.value} for each in failed]
        lines.append({"check": "masks", "outcome": WORKS.value})
        content = {"passed": not failed, "verdict": "the verdict", "lines": lines}

        def written(command, limit_s):
            Path(command[-1]).write_text(json.dumps(content))
            return kit.subprocess.CompletedProcess(command, 0, "")

        monkeypatch.setattr(kit, "output_of", written)
        opened = Bundle.open(bundle("b0"))
        manifest = replace(opened.manifest, engines=tuple(engines))
        found = Bundle(opened.path, manifest)
        return kit.line_of("kit", "selftest", lambda: check(found, tmp_path, 30.0))

    return line


def test_a_gpu_that_idles_before_any_engine_is_built_is_named_and_no_fault(selftested):
    line = selftested([kit.AT_WORK])
    assert line.outcome is WORKS
    assert names(line.words, "GPU", "no engine")
    assert line.facts["report"]["verdict"] == "the verdict"
    assert selftested([kit.AT_WORK, "masks"]).outcome is FAILS
    assert selftested([kit.AT_WORK], [ENGINE]).outcome is FAILS
    assert selftested([kit.AT_WORK], check=kit.selftest).outcome is FAILS


@pytest.fixture
def cmake(tmp_path, monkeypatch):
    """`cmake(script)`: the kit's line on mrcfa-segment with this program in place of CMake."""

    def found(script):
        (tmp_path / "cmake").write_text(f"#!/bin/sh\n{script}\n")
        for name in ("cmake", "c++"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(kit, "_this_python", dict)
        monkeypatch.setattr(kit, "ROOT", tmp_path)
        return step("mrcfa-segment", kit.segment_program).check(None, tmp_path, 30.0)

    return found


def test_mrcfa_segment_is_compiled_with_the_tensorrt_whose_headers_are_here(cmake):
    assert cmake("exit 0").facts == {"tensorrt": "tensorrt"}
    only_rtx = 'case "$*" in *=tensorrt) echo "TensorRT was not found."; exit 1;; esac'
    assert cmake(only_rtx).facts == {"tensorrt": "rtx"}
    none = 'case "$*" in *=tensorrt|*=rtx) echo "TensorRT was not found."; exit 1;; esac'
    assert cmake(none).facts == {"tensorrt": "OFF"}


def test_a_tensorrt_elsewhere_is_passed_to_cmake(cmake, monkeypatch):
    monkeypatch.delenv("TensorRT_ROOT", raising=False)
    nowhere_else = 'case "$*" in *TensorRT_ROOT*|*--build*) exit 0;; *) exit 1;; esac'
    with pytest.raises(kit.Fault, match=naming("cmake", 1)):
        cmake(nowhere_else)
    monkeypatch.setenv("TensorRT_ROOT", "/opt/tensorrt")
    assert cmake(nowhere_else.replace("ROOT*", "ROOT=/opt/tensorrt*")).facts


def test_mrcfa_segment_without_headers_is_not_run_and_one_that_does_not_compile_fails(cmake):
    with pytest.raises(kit.NotRun, match=naming("headers")):
        cmake('echo "ONNX Runtime\'s headers were"; echo "  not found."; exit 1')
    with pytest.raises(kit.Fault, match=naming("cmake", 2)):
        cmake('case "$*" in *--build*) echo "syntax error"; exit 2;; esac')


def test_a_selftest_without_a_report_fails(bundle, tmp_path):
    broken = Bundle(tmp_path / "nowhere", Bundle.open(bundle("b0")).manifest)
    with pytest.raises(kit.Fault, match="no report"):
        kit.selftest(broken, tmp_path, 60.0)
