"""`Parity`: errors of logits and masks against the reference over all frames, as checks."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle.checks import Check
from mrcfa.bundle.manifest import Limits

SAME_CLASS = "pixels with the same class"


@dataclass
class Parity:
    """Collects logits and masks frame by frame against a reference."""

    limits: Limits
    worst: float = 0.0
    totals: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    certain: list[bool] = field(default_factory=list)
    same_peaks: list[float] = field(default_factory=list)
    low: float = np.inf
    high: float = -np.inf

    def add_logits(
        self, logits: NDArray[np.floating], wanted: NDArray[np.floating], certain: bool = True
    ) -> None:
        """Logits (…, classes, h, w) of one frame.

        A frame is not `certain` if the reference's own choice of tokens is closer than the
        precision resolves: another token may then be kept, which moves all logits of the frame.
        """
        error = np.abs(logits.astype(np.float32) - wanted)
        # A NaN must not vanish in a maximum.
        self.worst = float(np.maximum(self.worst, error.max()))
        self.totals.append(float(error.mean()))
        self.certain.append(certain)
        self.same_peaks.append(float((logits.argmax(-3) == wanted.argmax(-3)).mean()))
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
            found += [
                Check("largest logit error", self.worst, "<=", limits.largest_error * scale),
                self._mean_error(limits.mean_error * scale),
            ]
        if self.agreements:
            share = float(np.mean(self.agreements))
            found.append(Check(SAME_CLASS, share, ">=", limits.agreement))
        return found

    @property
    def same_pixels(self) -> float:
        """The share of pixels with the same class, from the masks, or from logits alone."""
        return float(np.mean(self.agreements or self.same_peaks))

    def _mean_error(self, threshold: float) -> Check:
        """Checks over all frames; uncertain frames are left out if only they break a limit."""
        whole = Check("mean logit error", float(np.mean(self.totals)), "<=", threshold)
        certain = [total for total, sure in zip(self.totals, self.certain, strict=True) if sure]
        if whole.passed or not certain or not math.isfinite(whole.value):
            return whole
        where = f"mean logit error in {len(certain)} of {len(self.totals)} frames"
        return Check(where, float(np.mean(certain)), "<=", threshold)
