"""How far one backend's answers are from another's, as checks with limits."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mrcfa.checks import Check

LIMITS = {
    "fp32": {"worst": 5e-5, "mean": 5e-6, "agreement": 0.999},
    "fp16": {"worst": 0.25, "mean": 1e-3, "agreement": 0.99},
}
"""Of logit errors as shares of the logits' range; NVIDIA gates its SegFormer at 0.99 agreement.

In FP16 a token at the edge of STM's choice may swap with its neighbour, which moves single logits
far and the masks hardly: there the largest error only catches what is broken.
"""


@dataclass
class Parity:
    """Collects logits and masks frame by frame against a reference."""

    precision: str
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
        limits, found = LIMITS[self.precision], []
        if self.totals:
            scale = max(self.high - self.low, 1e-9)
            mean = float(np.mean(self.totals))
            found += [
                Check("largest logit error", self.worst, "<=", limits["worst"] * scale),
                Check("mean logit error", mean, "<=", limits["mean"] * scale),
            ]
        if self.agreements:
            share = float(np.mean(self.agreements))
            found.append(Check("pixels with the same class", share, ">=", limits["agreement"]))
        return found
