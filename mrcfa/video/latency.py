"""Percentiles of latencies in constant memory, because a camera may run for months."""

import math
from collections import Counter

STEP = 1.01
"""Ratio of neighbouring bins; percentiles are exact to one per cent."""


class Latencies:
    """A histogram of latencies with logarithmic bins."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self._bins[math.ceil(math.log(max(seconds, 1e-6), STEP))] += 1

    def __len__(self) -> int:
        return self._bins.total()

    def percentile_ms(self, percent: float) -> float:
        """The percentile in milliseconds, rounded up to a bin; 0 without latencies."""
        due = math.ceil(len(self) * percent / 100)
        for number in sorted(self._bins):
            due -= self._bins[number]
            if due <= 0:
                return float(STEP**number) * 1e3
        return 0.0

    def __str__(self) -> str:
        return f"latency p50 {self.percentile_ms(50):.0f} ms, p99 {self.percentile_ms(99):.0f} ms"
