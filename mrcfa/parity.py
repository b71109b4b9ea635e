"""`Parity`: errors of logits and masks against the reference, gathered over frames, as checks."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mrcfa.checks import Check
from mrcfa.manifest import Limits

SAME_CLASS = "pixels with the same class"


@dataclass
class Parity:
    """Collects logits and masks frame by frame against a reference."""

    limits: Limits
    worst: float = 0.0
    totals: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    low: float = np.inf
    high: float = -np.inf

    def add_logits(self, logits: NDArray[np.floating], wanted: NDArray[np.floating]) -> None:
        error = np.abs(logits.astype(np.float32) - wanted)
        # A NaN must not vanish in a maximum.
        self.worst = float(np.maximum(self.worst, error.max()))
        self.totals.append(float(error.mean()))
        self.low = min(self.low, float(wanted.min()))
        self.high = max(self.high, float(wanted.max()))

    def add_masks(self, mask: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> None:
        self.agreements.append(float((mask == wanted).mean()))

    @property
    def checks(self) -> list[Check]:
        limits = self.limits
        found: list[Check] = []
        if self.totals:
            scale = max(self.high - self.low, 1e-9)
            mean = float(np.mean(self.totals))
            found += [
                Check("largest logit error", self.worst, "<=", limits.largest_error * scale),
                Check("mean logit error", mean, "<=", limits.mean_error * scale),
            ]
        if self.agreements:
            share = float(np.mean(self.agreements))
            found.append(Check(SAME_CLASS, share, ">=", limits.agreement))
        return found
