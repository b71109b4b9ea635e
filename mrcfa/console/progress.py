"""Progress bars and spinners on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any


@contextmanager
def counting(total: int | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar with frames per second and the remaining time; silent without a terminal.

    Yields a function to call after each frame. Its `total` sets the number of frames later, its
    `note` adds text to the bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("frame {task.completed:.0f}"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, speed="", note="")

        def advance(total: int | None = None, note: str = "") -> None:
            speed = bar.tasks[0].speed
            text = "" if speed is None else f"{speed:.1f} frames/s"
            bar.update(task, advance=0 if total else 1, total=total, speed=text, note=note)

        yield advance


@contextmanager
def filling() -> Iterator[Callable[[str, float], None]]:
    """One progress bar per task; silent without a terminal.

    Yields a function of a task's name and its completed share, 0 to 1.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=1.0)
            bar.update(tasks[name], completed=share)

        yield show


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """A spinner with the name of the current step; silent without a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield status.update


@contextmanager
def training(iterations: int) -> Iterator[Callable[[int, float], None]]:
    """A progress bar with the loss, steps per second and the remaining time.

    Without a terminal, a line of text is printed from time to time instead.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(iterations)
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=iterations, state="")

        def show(iteration: int, loss: float) -> None:
            speed = bar.tasks[0].speed
            text = f"loss {loss:.3f}" + (f", {speed:.1f}/s" if speed else "")
            bar.update(task, completed=iteration, state=text)

        yield show


FIRST_S, EVERY_S = 10.0, 60.0
"""Seconds until the first line of progress without a terminal, and between later lines."""


def _lines(iterations: int) -> Callable[[int, float], None]:
    """Print the loss, the seconds per step and the remaining time on standard error."""
    began = monotonic()
    due, before = began + FIRST_S, -1

    def show(iteration: int, loss: float) -> None:
        nonlocal due, before
        before = iteration - 1 if before < 0 else before  # a resumed run starts later than 1
        now = monotonic()
        if now < due or iteration == iterations:
            return
        due = now + EVERY_S
        step = (now - began) / (iteration - before)
        left = timedelta(seconds=round(step * (iterations - iteration)))
        print(
            f"mrcfa: iteration {iteration} of {iterations}: loss {loss:.3f}, {step:.2f} s per "
            f"step, {left} left",
            file=sys.stderr,
            flush=True,
        )

    return show
