"""`make gpu-test`: everything that a GPU machine can report, in one JSON.

    python tests/gpu/kit.py bundles/demo --json gpu-test.json

Each step works, does not, or was not run, and says why. The JSON is written anew after each step,
so a step that hangs, or Ctrl-C, costs nothing of what was found before. Exit code 1 if a step
does not work.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mrcfa.bundle import Bundle
from mrcfa.machine import hardware
from mrcfa.machine.files import write_whole
from mrcfa.selftest.findings import findings
from mrcfa.selftest.line import Fault, Found, Line, NotRun, Outcome, line_of
from mrcfa.selftest.selftest import AT_WORK

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "build" / "plugin" / "libmrcfa_plugin.so"
SANITIZERS = ("memcheck", "racecheck", "synccheck")
"""Tools of compute-sanitizer."""
MINUTE = 60.0
_SUITE = ("tests", "-n", "2", "--dist", "worksteal", "--ignore", "tests/gpu")
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")


@dataclass(frozen=True)
class Step:
    """One question to the machine, and the seconds after which the answer is that it hangs."""

    name: str
    limit_s: float
    check: Callable[[Bundle, Path, float], Found]


def line(step: Step, bundle: Path, folder: Path) -> Line:
    """The answer to one step; `folder` gets what it leaves behind."""
    return line_of(
        "gpu-test", step.name, lambda: step.check(Bundle.open(bundle), folder, step.limit_s)
    )


def output_of(
    command: Sequence[object], limit_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own, all of which ends at the limit."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise Fault(
            f"it did not end within {limit_s / MINUTE:.0f} minutes and was stopped",
            "the JSON has the end of its output",
            tail=printed.splitlines()[-30:],
        ) from None
    return subprocess.CompletedProcess(command, process.returncode, printed)


def succeeded(
    command: Sequence[object], limit_s: float, environment: Mapping[str, str] | None = None
) -> list[str]:
    """The lines that a command printed; one that fails is a fault with the last of them."""
    done = output_of(command, limit_s, environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        end = lines[-1] if lines else "it printed nothing"
        raise Fault(
            f"{Path(str(command[0])).name} ended with exit code {done.returncode}: {end}",
            "the JSON has the end of its output",
            tail=lines[-30:],
        )
    return lines


def pytest_found(limit_s: float, *words: str, **environment: str) -> Found:
    """The counts of a pytest run, and the reasons of the tests that were not run."""
    command = [sys.executable, "-m", "pytest", "-rs", *words]
    done = output_of(command, limit_s, environment)
    lines = done.stdout.strip().splitlines()
    counts = {kind: int(number) for number, kind in _COUNTS.findall(lines[-1] if lines else "")}
    skipped = sorted({line.partition(": ")[2] for line in lines if line.startswith("SKIPPED")})
    facts = {**counts, "not_run": skipped, "tail": lines[-30:] if done.returncode else []}
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no test ran"
    if done.returncode:
        raise Fault(summary, "the JSON has the end of pytest's output", **facts)
    return Found("; ".join([summary, *skipped]), facts)


def selftest(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    report = folder / "selftest.json"
    report.unlink(missing_ok=True)
    try:
        printed = output_of(_mrcfa("selftest", bundle.path, "--json", report), limit_s).stdout
    except Fault as error:  # selftest writes its report after each check
        begun = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
        raise Fault(str(error), error.remedy, **error.facts, report=begun) from None
    if not report.is_file():
        raise Fault(
            "it wrote no report",
            f"run it alone: mrcfa selftest {bundle.path}",
            tail=printed.splitlines()[-30:],
        )
    content = json.loads(report.read_text(encoding="utf-8"))
    if not content["passed"]:
        remedy = f"mrcfa selftest {bundle.path} reports more"
        raise Fault(content["verdict"], remedy, report=content)
    return Found(content["verdict"], {"report": content})


def first_selftest(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """The selftest of the bundle as it came, in which the GPU may idle if there are no engines yet.

    The selftest after the build has no such exception.
    """
    try:
        return selftest(bundle, folder, limit_s)
    except Fault as error:
        lines = (error.facts.get("report") or {}).get("lines", [])
        failed = [each["check"] for each in lines if each["outcome"] == Outcome.FAILS.value]
        if bundle.manifest.engines or failed != [AT_WORK]:
            raise
        idle = "nothing ran on the GPU, because the bundle has no engine yet"
        return Found(f"{idle}; all else passed, and engines are built next", error.facts)


def engines(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """Engines for this GPU, built here; TensorRT itself can build nowhere else."""
    _needs_gpu()
    return Found("; ".join(succeeded(_mrcfa("build", bundle.path, "--warm"), limit_s)[-3:]))


def segment_program(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """C++'s mrcfa-segment where selftest looks for it, with TensorRT if that can be compiled."""
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        raise NotRun("cmake and a C++ compiler are needed; they are not on the path")
    tree = ROOT / "build" / "cpp"
    for flavour in ("tensorrt", "rtx", "OFF"):
        configure = ("cmake", "-S", "engines/cpp", "-B", tree, f"-DMRCFA_TENSORRT={flavour}")
        try:
            succeeded((*configure, *_tensorrt_root()), limit_s, _this_python())
            break
        except Fault as error:
            said = "\n".join(error.facts["tail"])
            if flavour == "OFF" and "not found" in " ".join(said.split()):
                raise NotRun("headers are missing (engines/cpp/README.md)") from None
            if flavour == "OFF":
                raise
    succeeded(("cmake", "--build", tree, "--parallel"), limit_s)
    engines = "without TensorRT, whose headers are not here" if flavour == "OFF" else flavour
    return Found(f"mrcfa-segment is compiled, {engines}", {"tensorrt": flavour})


def selftest_of_engines(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    _needs_gpu()
    return selftest(bundle, folder, limit_s)


def suite_on_gpu(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """The tests of the backends with the real TensorRT and CUDA instead of the doubles."""
    _needs_gpu()
    found = pytest_found(limit_s, "tests", "--gpu", "-n", "0")
    if not found.facts.get("passed"):
        raise NotRun(found.words)
    return found


def plugin(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    if shutil.which("nvcc") is None or shutil.which("cmake") is None:
        raise NotRun("nvcc and cmake are needed to compile the plugin; they are not on the path")
    tree = PLUGIN.parent
    try:
        succeeded(("cmake", "-S", "engines/plugin", "-B", tree, *_tensorrt_root()), limit_s)
    except Fault as error:
        if "headers were not found" not in "\n".join(error.facts["tail"]):
            raise
        raise NotRun("TensorRT's headers are missing; set TensorRT_ROOT (docs/gpu.md)") from None
    succeeded(("cmake", "--build", tree, "--parallel"), limit_s)
    return Found(f"{PLUGIN.name} is compiled")


def sanitizer(tool: str) -> Callable[[Bundle, Path, float], Found]:
    """A step that runs the plugin's kernels, inside an engine, under one tool of NVIDIA's."""

    def step(bundle: Bundle, folder: Path, limit_s: float) -> Found:
        _needs_gpu()
        program = compute_sanitizer()
        if program is None:
            raise NotRun("there is no compute-sanitizer: pip install nvidia-cuda-sanitizer-api")
        if not PLUGIN.is_file():
            raise NotRun(f"{PLUGIN.relative_to(ROOT)} is not built, for the reason above")
        environment = {"MRCFA_PLUGIN_LIBRARY": str(PLUGIN)}
        copy, lines = folder / "with-plugin", folder / f"{tool}.jsonl"
        if not copy.exists():
            shutil.copytree(bundle.path, copy)
            succeeded(_mrcfa("build", copy, "--plugin", "always"), limit_s, environment)
        engine = Bundle.open(copy).manifest.engines[-1].name
        checks = ("-m", "mrcfa.selftest.stream_checks", copy, engine, lines, "1")
        watched = (program, *sanitizer_options(tool), sys.executable, *checks)
        succeeded(watched, limit_s, environment)
        found = [Line.from_json(each) for each in lines.read_text("utf-8").splitlines()]
        for failed in (each for each in found if each.outcome is Outcome.FAILS):
            raise Fault(failed.words, "see docs/gpu.md on the plugin")
        ran = [each.check for each in found if each.outcome is Outcome.WORKS]
        if not ran:
            raise NotRun("; ".join(each.words for each in found) or "nothing ran under it")
        return Found(f"{engine} with the plugin: no error in {', '.join(ran)}", {"ran": ran})

    return step


def sanitizer_options(tool: str) -> tuple[str, ...]:
    """Watch the plugin's kernels alone, which are in the namespace mrcfa: NVIDIA's are NVIDIA's.

    CUDA's libraries ask for symbols that may be missing, and memcheck would count these calls as
    errors. The process may load torch or TensorRT for longer than the ten seconds before its first
    call of CUDA that are the default.
    """
    everywhere = ("--tool", tool, "--error-exitcode", "7", "--launch-timeout", "0")
    errors = ("--report-api-errors", "no") if tool == "memcheck" else ()
    return (*everywhere, *errors, "--kernel-name", "kernel_substring=mrcfa")


def compute_sanitizer() -> str | None:
    """The program on the path, or the one in pip's wheel nvidia-cuda-sanitizer-api."""
    wheel = Path(sys.prefix).glob("lib/python*/site-packages/nvidia/**/compute-sanitizer")
    files = (str(path) for path in sorted(wheel) if path.is_file())
    return shutil.which("compute-sanitizer") or next(files, None)


def cpp(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """C++ masks against Python's; the tests compile the library themselves."""
    found = pytest_found(limit_s, "tests/engines/test_cpp.py", "tests/engines/test_cpp_tensorrt.py")
    if not found.facts.get("passed"):
        raise NotRun(found.words)
    return found


def suite(bundle: Bundle, folder: Path, limit_s: float) -> Found:
    """The ordinary tests, which expect a machine without a GPU, so it is hidden from them."""
    found = pytest_found(limit_s, *_SUITE, CUDA_VISIBLE_DEVICES="")
    return replace(found, words=f"{found.words}; GPUs were hidden") if hardware.gpus() else found


STEPS = (
    Step("selftest", 25 * MINUTE, first_selftest),
    Step("engines", 60 * MINUTE, engines),
    Step("mrcfa-segment", 20 * MINUTE, segment_program),
    Step("selftest of engines", 25 * MINUTE, selftest_of_engines),
    Step("suite on the GPU", 30 * MINUTE, suite_on_gpu),
    Step("C++ against Python", 20 * MINUTE, cpp),
    Step("plugin", 15 * MINUTE, plugin),
    *(Step(f"{tool} of the plugin", 30 * MINUTE, sanitizer(tool)) for tool in SANITIZERS),
    Step("suite", 60 * MINUTE, suite),
)
"""The quickest answers first. A Jetson builds engines for longer than ten minutes. A selftest may
last longer than its own limit for one hanging process, so that it reports that itself."""


def answers(steps: Sequence[Step], bundle: Path, folder: Path) -> Iterator[list[Line]]:
    """All lines, each time that one more is known; "not run" stands for what comes later."""
    lines = [Line("gpu-test", s.name, Outcome.NOT_RUN, "it was not reached") for s in steps]
    yield lines
    for index, step in enumerate(steps):
        try:
            lines[index] = line(step, bundle, folder)
        except KeyboardInterrupt:
            lines[index] = replace(lines[index], words="it was stopped by Ctrl-C")
            yield lines
            return
        yield lines


def report(lines: Sequence[Line]) -> str:
    """JSON of the machine and all steps. A run that was cut short has `complete` false."""
    content = {
        "kind": "gpu-test",
        "passed": not any(each.outcome is Outcome.FAILS for each in lines),
        "complete": not any("not reached" in each.words for each in lines),
        "machine": [asdict(finding) for finding in findings()],
        "steps": [each.to_json() for each in lines],
    }
    return json.dumps(content, indent=1) + "\n"


def _this_python() -> dict[str, str]:
    """An environment in which `python3` is this one, whose wheel of ONNX Runtime CMake finds."""
    return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def _tensorrt_root() -> tuple[str, ...]:
    """The option for CMake that names the TensorRT in the environment variable TensorRT_ROOT."""
    folder = os.environ.get("TensorRT_ROOT")  # noqa: SIM112  CMake spells it so
    return (f"-DTensorRT_ROOT={folder}",) if folder else ()


def _mrcfa(*words: object) -> tuple[object, ...]:
    return (sys.executable, "-m", "mrcfa.cli", *words)


def _needs_gpu() -> None:
    if not hardware.gpus():
        raise NotRun("no GPU is visible here")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Everything that a GPU machine can report.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--json", type=Path, default=Path("gpu-test.json"))
    chosen = parser.parse_args(words)
    bundle, target = chosen.bundle.absolute(), chosen.json.absolute()
    with TemporaryDirectory(prefix="mrcfa-gpu-test-") as folder:
        for count, lines in enumerate(answers(STEPS, bundle, Path(folder))):
            if count:
                print(lines[count - 1], flush=True)
            write_whole(target, report(lines).encode())
    print(f"wrote {chosen.json}")
    return 1 if any(each.outcome is Outcome.FAILS for each in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
