"""Checks in processes of their own: a crash is an answer, and so is how a process ends."""

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
POLITE = {"OMP_WAIT_POLICY": "passive"}
"""PyTorch's threads wait for each other asleep. Where other programs want the cores, threads that
spin wait for one that is not running: a conv took five times as long on such a machine."""


def lines_of(bundle: Bundle, way: SelftestWay, gpus: int) -> Iterator[Line]:
    """What `stream_checks` answers in its own process, and how that process ended."""
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
            return Found("the process ends well with its streams open")

        end = line_of(way.name, "exit", ended)
        text = answers.read_text(encoding="utf-8") if answers.is_file() else ""
        found = [Line.from_json(line) for line in text.splitlines()]
    yield from found
    if end.outcome is not Outcome.WORKS or any(line.outcome is Outcome.WORKS for line in found):
        yield end


def start_line(bundle: Bundle, way: SelftestWay) -> Line:
    """Seconds to the first mask, at the very first start and when caches are filled."""

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
    """In a context that pycuda made, and that pycuda's own exit takes away."""

    def ended() -> Found:
        if package_version("pycuda", ("pycuda",)) is None:
            raise NotRun(f"pycuda is not installed: {install_command('pycuda')}")
        _start_s(bundle, way, {}, "import pycuda.autoinit")
        return Found("the process ends well in pycuda's context")

    return line_of(way.name, "exit, pycuda", ended)


_START = """
import sys
from time import perf_counter
import numpy as np
from mrcfa import Stream
began = perf_counter()
stream = Stream(sys.argv[1], sys.argv[2], precision=sys.argv[3] or None)
stream(np.zeros((*stream.size, 3), np.uint8))
print(perf_counter() - began)
"""


def _start_s(
    bundle: Bundle, way: SelftestWay, environment: Mapping[str, str], before: str = ""
) -> float:
    words = (str(bundle.path), way.backend, way.precision or "")
    said = python("-c", before + _START, *words, environment=environment)
    return float(said.splitlines()[-1])


def python(*words: str, environment: Mapping[str, str] | None = None) -> str:
    """What a fresh interpreter prints; anything but a good end is a `Fault`."""
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
            env={**POLITE, **os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise Fault(f"its process did not end within {LIMIT_S} s and was stopped", REPORT) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Fault(
            f"its process ended with {_ending(done.returncode)}"
            + (f": {said[-1]}" if said else ""),
            REPORT,
            returncode=done.returncode,
            stderr=said[-20:],
        )
    return done.stdout


def _ending(code: int) -> str:
    """Python tells a signal by a negative number."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def tool_path(given: Path | None) -> Path:
    """The C++ program: the one named, one on the path, or the one built in this clone.

    The current folder is no place to look: it may have come from elsewhere, with the bundle.
    """
    if given is not None:
        if not given.is_file():
            raise Fault(f"there is no {given}", "name mrcfa-segment with --cpp-tool")
        return given
    built = CLONE / "build/cpp/mrcfa-segment"
    found = shutil.which("mrcfa-segment") or (built if built.is_file() else None)
    if found is None:
        raise NotRun(
            f"no mrcfa-segment on the path or at {built} (engines/cpp/README.md builds it)"
        )
    return Path(found)
