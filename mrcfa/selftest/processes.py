"""Checks in processes of their own, so that a crash or a bad exit is a result too."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import mrcfa
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.machine.children import python_command
from mrcfa.machine.extras import install_command
from mrcfa.machine.files import scratch_folder
from mrcfa.machine.hardware import package_version
from mrcfa.selftest.line import REPORT, Fault, Found, Line, NotRun, Outcome, line_of
from mrcfa.selftest.ways import SelftestWay

CLONE = Path(mrcfa.__file__).parents[1]
LIMIT_S = 600
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive"}
"""PyTorch's threads sleep while they wait for each other. Threads that spin take cores from the
thread they wait for: on a busy machine a conv took five times as long."""


def lines_of(bundle: Bundle, way: SelftestWay, gpus: int) -> Iterator[Line]:
    """Results of `stream_checks` in its own process, and of the exit of that process."""
    with scratch_folder() as folder:
        answers = folder / "answers.jsonl"
        words = [
            "mrcfa.selftest.stream_checks",
            str(bundle.path),
            way.name,
            str(answers),
        ]

        def ended() -> Found:
            python("-m", *words, str(gpus))
            return Found("the process exits cleanly with its streams open")

        end = line_of(way.name, "exit", ended)
        text = answers.read_text(encoding="utf-8") if answers.is_file() else ""
        found = [Line.from_json(line) for line in text.splitlines()]
    yield from found
    if end.outcome is not Outcome.WORKS or any(line.outcome is Outcome.WORKS for line in found):
        yield end


def start_line(bundle: Bundle, way: SelftestWay) -> Line:
    """Measure the seconds to the first mask, with empty and then with filled caches."""

    def measured() -> Found:
        with scratch_folder() as folder:
            cache = {"XDG_CACHE_HOME": str(folder)}
            first, second = (_start_s(bundle, way, cache) for _ in range(2))
            kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        facts = {"first_s": first, "cached_s": second, "cache_bytes": kept}
        words = f"first mask after {first:.1f} s, with a filled cache after {second:.1f} s"
        if way.engine is not None and way.engine.flavour == Flavour.RTX.value and not kept:
            raise Fault(f"{words}: nothing was cached", REPORT, **facts)
        return Found(words, facts)

    return line_of(way.name, "start", measured)


def pycuda_line(bundle: Bundle, way: SelftestWay) -> Line:
    """Check that a process exits cleanly if pycuda made its CUDA context and destroys it."""

    def ended() -> Found:
        if package_version("pycuda", ("pycuda",)) is None:
            raise NotRun(f"pycuda is not installed: {install_command('pycuda')}")
        _start_s(bundle, way, {}, "import pycuda.autoinit")
        return Found("the process exits cleanly in pycuda's context")

    return line_of(way.name, "exit, pycuda", ended)


_START = """
import sys
from time import perf_counter
import numpy as np
from mrcfa import Stream
began = perf_counter()
stream = Stream(sys.argv[1], sys.argv[2], precision=sys.argv[3] or None)
stream(np.zeros(stream.input.shape(stream.size), np.uint8))
print(perf_counter() - began)
"""


def _start_s(
    bundle: Bundle, way: SelftestWay, environment: Mapping[str, str], before: str = ""
) -> float:
    words = (str(bundle.path), way.backend, way.precision or "")
    output = python("-c", before + _START, *words, environment=environment)
    return float(output.splitlines()[-1])


def python(*words: str, environment: Mapping[str, str] | None = None) -> str:
    """Output of a new Python process; raises Fault if the process fails."""
    return output_of(python_command(*words), environment=environment).decode()


def output_of(
    command: Sequence[str],
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> bytes:
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=LIMIT_S,
            env={**SLEEPING_THREADS, **os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise Fault(f"its process did not end within {LIMIT_S} s and was stopped", REPORT) from None
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise Fault(
            f"its process ended with {_ending(done.returncode)}"
            + (f": {errors[-1]}" if errors else ""),
            REPORT,
            returncode=done.returncode,
            stderr=errors[-20:],
        )
    return done.stdout


def _ending(code: int) -> str:
    """Text of an exit code; Python reports a signal as a negative code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def tool_path(given: Path | None) -> Path:
    """The C++ program: the given one, the one on PATH, or the one built in this clone.

    The current folder is not searched, because it may come from elsewhere together with the bundle.
    """
    if given is not None:
        if not given.is_file():
            raise Fault(f"{given} does not exist", "give the path of mrcfa-segment to --cpp-tool")
        return given
    built = CLONE / "build/cpp/mrcfa-segment"
    found = shutil.which("mrcfa-segment") or (built if built.is_file() else None)
    if found is None:
        raise NotRun(
            "mrcfa-segment is neither on PATH nor in build/cpp of the clone; "
            "engines/cpp/README.md says how to build it"
        )
    return Path(found)
