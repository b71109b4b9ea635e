"""How long the parts of a step take."""

import time
from collections.abc import Iterable, Mapping

import torch

PARTS = ("data", "forward", "backward", "optimizer")
"""Waiting for data comes first; the others are computing."""


class Stopwatch:
    """Seconds between laps, by part.

    A GPU works behind the program's back. With `exact` every lap waits for it, which tells the
    parts apart and costs a little speed; without, its work counts for whatever waits for it next.
    """

    def __init__(self, device: torch.device, exact: bool) -> None:
        self._waits = exact and device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """What was done since the last lap was this part."""
        if self._waits:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now


def pace(steps: Iterable[Mapping[str, float]]) -> tuple[float, float]:
    """Seconds per step, and which share of them it waited for data."""
    totals = [(sum(step.values()), step["data"]) for step in steps]
    whole, waited = (sum(each) for each in zip(*totals, strict=True))
    return whole / len(totals), waited / whole


def profile(steps: list[dict[str, float]]) -> str:
    """A sentence on how the steps' time was spent."""
    means = {part: sum(step[part] for step in steps) / len(steps) for part in PARTS}
    whole = sum(means.values())
    shares = (f"{name} {mean:.3f} s ({mean / whole:.0%})" for name, mean in means.items())
    return f"a step takes {whole:.3f} s, the mean of {len(steps)}: waiting for {', '.join(shares)}"
