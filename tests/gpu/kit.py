"""`make gpu-test`: everything that a GPU machine can tell, in one JSON.

    python tests/gpu/kit.py bundles/vspw-b1 --json gpu-test.json

Each step works, does not, or was not run, and says why. Exit code 1 if a step does not work.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mrcfa.bundle import Bundle
from mrcfa.machine import hardware
from mrcfa.selftest.line import Fault, Found, Line, NotRun, Outcome, line_of
from mrcfa.selftest.processes import output_of

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "build" / "plugin" / "libmrcfa_plugin.so"
CPP = ROOT / "build" / "cpp" / "mrcfa-segment"
SELFTEST = "selftest"
_SUITE = ("tests", "-n", "2", "--dist", "worksteal", "--ignore", "tests/gpu")
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")


def steps(bundle: Path, folder: Path) -> Iterator[Line]:
    """In the order in which one would look at them; `folder` gets what they leave behind."""
    checks: dict[str, Callable[[], Found]] = {
        "suite": lambda: pytest_found(*_SUITE),
        "suite on the GPU": _on_gpu,
        "engines": lambda: _built(bundle),
        "compute-sanitizer": lambda: _sanitized(bundle, folder),
        "C++ against Python": _cpp,
        SELFTEST: lambda: _selftest(bundle, folder),
    }
    for name, check in checks.items():
        yield line_of("gpu-test", name, check)


def pytest_found(*words: str) -> Found:
    """A run of pytest; what it skipped is told with the reasons."""
    command = [sys.executable, "-m", "pytest", "-rs", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    counts = {kind: int(number) for number, kind in _COUNTS.findall(lines[-1] if lines else "")}
    skipped = sorted({line.partition(": ")[2] for line in lines if line.startswith("SKIPPED")})
    facts = {**counts, "not_run": skipped, "tail": lines[-30:] if done.returncode else []}
    told = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no test ran"
    if done.returncode:
        raise Fault(told, "the JSON has the end of pytest's words", **facts)
    return Found("; ".join([told, *skipped]), facts)


def _on_gpu() -> Found:
    """The real TensorRT and CUDA where the doubles stood in the step before."""
    _needs_gpu()
    found = pytest_found("tests", "--gpu", "-n", "0")
    if not found.facts.get("passed"):
        raise NotRun(found.words)
    return found


def _built(bundle: Path) -> Found:
    _needs_gpu()
    said = output_of([sys.executable, "-m", "mrcfa.cli", "build", str(bundle), "--warm"])
    return Found("; ".join(said.decode().splitlines()[-3:]))


def _sanitized(bundle: Path, folder: Path) -> Found:
    """The plugin's kernels inside an engine, under NVIDIA's memory checker."""
    _needs_gpu()
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise NotRun("there is no compute-sanitizer; it comes with the CUDA toolkit")
    if not PLUGIN.is_file():
        raise NotRun(f"{PLUGIN.relative_to(ROOT)} is not built (docs/gpu.md says how)")
    copy = folder / "with-plugin"
    shutil.copytree(bundle, copy)
    plugin = {"MRCFA_PLUGIN_LIBRARY": str(PLUGIN)}
    build = [sys.executable, "-m", "mrcfa.cli", "build", str(copy), "--plugin", "always"]
    output_of(build, environment=plugin)
    engine = Bundle.open(copy).manifest.engines[-1].name
    checks = ["mrcfa.selftest.stream_checks", str(copy), engine, str(folder / "lines"), "1"]
    watched = [tool, "--error-exitcode", "7", sys.executable, "-m", *checks]
    output_of(watched, environment=plugin)
    found = [Line.from_json(line) for line in (folder / "lines").read_text().splitlines()]
    for line in found:
        if line.outcome is Outcome.FAILS:
            raise Fault(line.words, "see docs/gpu.md on the plugin")
    ran = [line.check for line in found if line.outcome is Outcome.WORKS]
    if not ran:
        raise NotRun("; ".join(line.words for line in found) or "nothing ran under it")
    return Found(f"{engine} with the plugin: no error in {', '.join(ran)}", {"ran": ran})


def _cpp() -> Found:
    if not CPP.is_file():
        raise NotRun(f"{CPP.relative_to(ROOT)} is not built (engines/cpp/README.md says how)")
    return pytest_found("tests/engines/test_cpp.py", "tests/engines/test_cpp_tensorrt.py")


def _selftest(bundle: Path, folder: Path) -> Found:
    report = folder / "selftest.json"
    command = [sys.executable, "-m", "mrcfa.cli", "selftest", str(bundle), "--json", str(report)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if not report.is_file():
        raise Fault("it wrote no report", f"run it alone: mrcfa selftest {bundle}")
    content = json.loads(report.read_text())
    if not content["passed"]:
        raise Fault(content["verdict"], f"mrcfa selftest {bundle} tells more", report=content)
    return Found(content["verdict"], {"report": content})


def _needs_gpu() -> None:
    if not hardware.gpus():
        raise NotRun("no GPU is visible here")


def main() -> int:
    words = argparse.ArgumentParser(description="Everything that a GPU machine can tell.")
    words.add_argument("bundle", type=Path)
    words.add_argument("--json", type=Path, default=Path("gpu-test.json"))
    told = words.parse_args()
    os.chdir(ROOT)
    lines = []
    with TemporaryDirectory(prefix="mrcfa-gpu-test-") as folder:
        for line in steps(told.bundle, Path(folder)):
            lines.append(line)
            print(line, flush=True)
    failed = any(line.outcome is Outcome.FAILS for line in lines)
    content = {"kind": "gpu-test", "passed": not failed, "steps": [x.to_json() for x in lines]}
    told.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {told.json}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
