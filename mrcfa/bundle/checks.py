"""`Check`: a measured value, its threshold, and whether it passed."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Check:
    """`value operator threshold`, for instance a maximal error of 2e-5 that must be <= 1e-4."""

    name: str
    value: float
    operator: Literal["<=", ">="]
    threshold: float

    @property
    def passed(self) -> bool:
        """False for NaN, which compares false with everything."""
        if self.operator == "<=":
            return self.value <= self.threshold
        return self.value >= self.threshold

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        return f"{self.name}: {self.value:.3g} {self.operator} {self.threshold:.3g} {verdict}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "passed": self.passed}
