"""Progress of a build from TensorRT's nested phases, and Ctrl-C, which TensorRT would swallow."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mrcfa.machine.interrupts import handled

Progress = Callable[[str, float], None]
"""Called with the name of the current work and its finished share, 0 to 1."""


@dataclass
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """TensorRT's phases: each has a number of steps, and a step may be a phase of its own."""

    def __init__(self) -> None:
        self._running: dict[str, _Phase] = {}
        self.share = 0.0
        """The finished share of the build, which never decreases."""

    def start(self, name: str, parent: str | None, steps: int) -> None:
        self._running[name] = _Phase(parent, max(1, steps))

    def step(self, name: str, number: int) -> None:
        if name in self._running:
            self._running[name].done = number + 1
        roots = [name for name, phase in self._running.items() if phase.parent is None]
        self.share = max(self.share, *map(self._share, roots), 0.0)

    def finish(self, name: str) -> None:
        self._running.pop(name, None)

    def _share(self, name: str) -> float:
        phase = self._running[name]
        inner = [self._share(each) for each, other in self._running.items() if other.parent == name]
        return min(1.0, (phase.done + max(inner, default=0.0)) / phase.steps)


def monitor(trt: ModuleType, report: Callable[[float], None], stopped: threading.Event) -> Any:
    """TensorRT's progress monitor: reports the share that is done, and cancels once stopped."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]  # a base of run time
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._phases = Phases()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            self._phases.step(phase_name, step)
            report(self._phases.share)
            return not stopped.is_set()

        def phase_finish(self, phase_name: str) -> None:
            self._phases.finish(phase_name)

    return Monitor()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; `KeyboardInterrupt` is raised when the block ends.

    Raised inside one of TensorRT's callbacks it would be printed and forgotten.
    """
    stopped = threading.Event()
    with handled(lambda number, frame: stopped.set()):
        try:
            yield stopped
        finally:
            if stopped.is_set():
                raise KeyboardInterrupt
