"""Timing of the parts of a training step."""

import time
from collections.abc import Iterable, Mapping

import torch

PARTS = ("data", "forward", "backward", "optimizer")
"""Parts of a step: waiting for data, then three parts of computing."""


class Stopwatch:
    """Seconds of each part of a step.

    A GPU works asynchronously. With `exact`, every lap waits for it, which costs a little speed;
    otherwise its time counts for the part that next waits for it.
    """

    def __init__(self, device: torch.device, exact: bool) -> None:
        self._waits = exact and device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to this part."""
        if self._waits:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now


def pace(steps: Iterable[Mapping[str, float]]) -> tuple[float, float]:
    """Mean seconds per step, and the share of them spent waiting for data."""
    totals = [(sum(step.values()), step["data"]) for step in steps]
    whole, waited = (sum(seconds) for seconds in zip(*totals, strict=True))
    return whole / len(totals), waited / whole


def profile(steps: list[dict[str, float]]) -> str:
    """A sentence with the mean time of each part of the steps."""
    means = {part: sum(step[part] for step in steps) / len(steps) for part in PARTS}
    whole = sum(means.values())
    shares = (f"{name} {mean:.3f} s ({mean / whole:.0%})" for name, mean in means.items())
    return f"a step takes {whole:.3f} s, the mean of {len(steps)}: waiting for {', '.join(shares)}"
