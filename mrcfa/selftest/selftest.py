"""`mrcfa selftest` checks files, driver, GPUs and every way to run the bundle."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mrcfa
from mrcfa.bundle import Bundle
from mrcfa.bundle.inspection import facts
from mrcfa.errors import named
from mrcfa.machine import hardware
from mrcfa.machine.drivers import cuda_needs
from mrcfa.machine.hardware import Gpu
from mrcfa.selftest.cpp import cpp_line
from mrcfa.selftest.environment import environment, gpu_facts
from mrcfa.selftest.findings import findings
from mrcfa.selftest.line import Fault, Found, Line, NotRun, Outcome, line_of
from mrcfa.selftest.processes import lines_of, pycuda_line, start_line
from mrcfa.selftest.ways import SelftestWay, in_order, ways

MASKS = "masks"
"""Name of the check that compares masks with the reference's."""
AT_WORK = "GPU at work"
"""Name of the check that something ran on the GPU."""


def selftest(bundle: Bundle, cpp_tool: Path | None = None) -> Iterator[Line]:
    """Yield the result of each check as soon as it is known; takes a minute and needs no torch."""
    yield line_of("bundle", "files", lambda: _files(bundle))
    cards = hardware.gpus()
    yield line_of("machine", "CUDA driver", _driver)
    yield line_of("machine", "GPU", lambda: _gpus(cards))
    used = False
    for way in in_order(ways(bundle)):
        for line in _lines(bundle, way, cards):
            used |= way.cuda and line.outcome is Outcome.WORKS
            yield line
    if not bundle.manifest.engines:
        yield line_of("TensorRT", "engines", lambda: _no_engines(bundle))
    yield line_of("machine", AT_WORK, lambda: _at_work(bundle, cards, used))
    yield cpp_line(bundle, cpp_tool)


def passed(lines: Sequence[Line]) -> bool:
    """True if no check failed and at least one way was compared with the reference."""
    compared = any(line.check == MASKS and line.outcome is Outcome.WORKS for line in lines)
    return compared and not any(line.outcome is Outcome.FAILS for line in lines)


def verdict(lines: Sequence[Line]) -> str:
    works, fails, idle = (
        sum(line.outcome is outcome for line in lines)
        for outcome in (Outcome.WORKS, Outcome.FAILS, Outcome.NOT_RUN)
    )
    text = f"{works} checks passed, {fails} failed, {idle} were not run."
    if fails:
        broken = dict.fromkeys(
            f"{line.subject} ({line.check})" for line in lines if line.outcome is Outcome.FAILS
        )
        return f"FAILED: {named(broken)}. {text}"
    if not passed(lines):
        return f"FAILED: nothing here could run the bundle. {text}"
    ran = [line.subject for line in lines if line.check == MASKS and line.outcome is Outcome.WORKS]
    return f"Passed: {named(ran)} match the reference. {text}"


def surroundings(bundle: Bundle) -> dict[str, Any]:
    """Machine, versions and bundle as JSON, for the report."""
    return {
        "machine": [asdict(finding) for finding in findings()],
        "environment": environment() | gpu_facts(),
        "bundle": facts(bundle),
    }


def report(around: Mapping[str, Any], lines: Sequence[Line], complete: bool = True) -> str:
    """Results and their surroundings as JSON text; `complete` is false while checks are left."""
    content: dict[str, Any] = {
        "kind": "selftest",
        "mrcfa": mrcfa.__version__,
        "complete": complete,
        "passed": complete and passed(lines),
        "verdict": verdict(lines) if complete else "It is at work, or was stopped.",
        "lines": [line.to_json() for line in lines],
        **around,
    }
    return json.dumps(content, indent=1) + "\n"


def _lines(bundle: Bundle, way: SelftestWay, cards: Sequence[Gpu]) -> Iterator[Line]:
    if way.cuda and not cards:
        yield line_of(way.name, MASKS, _no_gpu)
        return
    if way.absent:
        yield line_of(way.name, MASKS, lambda: _absent(way))
        return
    found = list(lines_of(bundle, way, len(cards)))
    yield from found
    sound = any(line.check == MASKS and line.outcome is Outcome.WORKS for line in found)
    if way.engine is not None and sound:
        yield start_line(bundle, way)
        yield pycuda_line(bundle, way)


def _files(bundle: Bundle) -> Found:
    """Check every file that the manifest names, also those that this machine does not use."""
    for name in bundle.manifest.files:
        bundle.file(name)
    size = sum(entry.bytes for entry in bundle.manifest.files.values())
    return Found(f"{len(bundle.manifest.files)} files, {size / 1e6:.0f} MB, as the manifest says")


def _driver() -> Found:
    """Check that the driver is new enough for every installed TensorRT and CUDA binding."""
    version = hardware.cuda_driver()
    if version is None:
        raise NotRun("there is no NVIDIA driver here, so nothing can run on a GPU")
    needs = cuda_needs()
    wrong = [need for need in needs if not need.met_by(version)]
    if wrong:
        raise Fault(
            f"the driver supports CUDA {version}, and {named(need.package for need in wrong)} "
            f"need{'s' if len(wrong) == 1 else ''} {wrong[0].cuda}",
            wrong[0].remedy,
            driver_cuda=version,
        )
    enough = f", enough for {named(need.package for need in needs)}" if needs else ""
    return Found(f"CUDA {version}{enough}", {"driver_cuda": version})


def _gpus(cards: Sequence[Gpu]) -> Found:
    if not cards:
        _no_gpu()
    names = named(f"{card.name} (sm_{card.sm})" for card in cards)
    return Found(names, {"gpus": [asdict(card) for card in cards]})


def _no_gpu() -> Found:
    raise NotRun("no GPU is visible here")


def _absent(way: SelftestWay) -> Found:
    raise NotRun(way.absent)


def _no_engines(bundle: Bundle) -> Found:
    raise NotRun(f"the bundle has no engines; build them with: mrcfa build {bundle.path}")


def _at_work(bundle: Bundle, cards: Sequence[Gpu], used: bool) -> Found:
    """Check that something ran on the GPU; an idle GPU is a failure even if the CPU works."""
    if not cards:
        _no_gpu()
    if not used:
        raise Fault(
            f"nothing ran on {cards[0].name}, for the reasons above",
            f"build engines for it with mrcfa build {bundle.path}; mrcfa doctor says what is "
            "missing",
        )
    return Found("it ran the bundle")
