"""Results of a benchmark: one row per contender, ratios between rows, and one verdict."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from mrcfa.benchmarks.contenders import USUAL, Contender, Role, check_names
from mrcfa.benchmarks.cost import ceilings
from mrcfa.benchmarks.footprint import Footprint
from mrcfa.benchmarks.layer_times import LayerTime
from mrcfa.benchmarks.parity import MARKS, Mask
from mrcfa.benchmarks.precisions import Precision, precisions
from mrcfa.benchmarks.speed import Ratio, Speed, ratio
from mrcfa.bundle import Bundle
from mrcfa.bundle.checks import Check
from mrcfa.bundle.inspection import facts
from mrcfa.bundle.manifest import Device, PlanCost
from mrcfa.bundle.parity import SAME_CLASS
from mrcfa.bundle.precisions import EIGHT_BITS
from mrcfa.errors import InvalidValue, named

PICTURED = 3
"""Number of frames whose masks the report shows."""


@dataclass(frozen=True)
class BenchOptions:
    """Settings of a benchmark. Values that are wrong for every bundle raise InvalidValue."""

    backends: Sequence[str] = USUAL
    frames: int = 30
    warmup: int = 10
    """Frames before timing starts; at least as many as the farthest reference lies back."""
    drift: int = 100
    """Last frame of the drift check; 0: no drift check."""
    video: Path | None = None
    threads: int = 0
    """CPU threads of each backend; 0: all cores."""
    peer: bool = True
    data: Path | None = None
    """A dataset on which every precision is evaluated too; None: no metrics."""
    split: str = "val"
    limit: int | None = None
    """Number of the dataset's videos to evaluate; None: all."""

    def __post_init__(self) -> None:
        check_names(self.backends)
        if self.frames < PICTURED:
            raise InvalidValue(f"--frames is {self.frames}; measure at least {PICTURED}")
        if self.threads < 0:
            raise InvalidValue(f"--threads is {self.threads}; use 1 or more, or 0 for all cores")
        if self.drift and self.drift < MARKS[1]:
            raise InvalidValue(
                f"--drift is {self.drift}, but errors are compared at frames "
                f"{named(map(str, MARKS))}: use {MARKS[1]}, {MARKS[2]}, or 0 for not at all"
            )


class Outcome(str, Enum):
    RAN = "ran"
    NOT_RUN = "not run"
    STOPPED = "stopped"


class Verdict(str, Enum):
    """Result of a row's parity checks."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_RUN = "not run"
    STOPPED = "stopped"
    REFERENCE = "reference"
    ANOTHER_MODEL = "another model"
    NOT_CHECKED = "not checked"

    @property
    def bad(self) -> bool:
        return self in (Verdict.FAILED, Verdict.STOPPED)


@dataclass(frozen=True)
class Row:
    """All results of one contender."""

    contender: Contender
    outcome: Outcome = Outcome.RAN
    reason: str = ""
    """Why it did not run or stopped, or which of its figures could not be measured."""
    speed: Speed | None = None
    checks: tuple[Check, ...] = ()
    drift: Mapping[int, float] = field(default_factory=dict)
    footprint: Footprint | None = None
    masks: Mapping[int, Mask] = field(default_factory=dict)
    """Masks of the pictured frames, by frame number."""
    gpu: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Clocks, power and temperature `before` and `after` the measured block."""
    layers: tuple[LayerTime, ...] = ()
    """The slowest layers of its engine."""

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def failure(self) -> str:
        """Short text of the failure: the error, or the names of the failed checks."""
        if self.outcome is not Outcome.RAN:
            return self.reason
        return named(check.name for check in self.checks if not check.passed)

    @property
    def verdict(self) -> Verdict:
        if self.outcome is not Outcome.RAN:
            return Verdict.NOT_RUN if self.outcome is Outcome.NOT_RUN else Verdict.STOPPED
        if self.checks:
            passed = all(check.passed for check in self.checks)
            return Verdict.PASSED if passed else Verdict.FAILED
        idle = {Role.REFERENCE: Verdict.REFERENCE, Role.PEER: Verdict.ANOTHER_MODEL}
        return idle.get(self.contender.role, Verdict.NOT_CHECKED)


@dataclass(frozen=True)
class Result:
    bundle: Bundle
    options: BenchOptions
    rows: tuple[Row, ...]
    environment: Mapping[str, str]
    pictures: Mapping[int, Mask]
    """The pictured frames (h, w, 3), by frame number."""
    wanted: Mapping[int, Mask]
    """The reference's masks of the pictured frames, by frame number."""
    unchecked: str
    """Why nothing was compared with the reference; empty if rows were compared."""
    peer_costs: Mapping[str, PlanCost] = field(default_factory=dict)
    """The peer's compiled cost, by the name of the engine it is compared with."""
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metrics on the dataset `options.data`, by precision."""

    @property
    def passed(self) -> bool:
        """True if at least one row besides the peer ran, no row stopped, and no check failed."""
        ran = any(
            row.outcome is Outcome.RAN and row.contender.role is not Role.PEER for row in self.rows
        )
        return ran and not any(row.verdict.bad for row in self.rows)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole benchmark."""
        if not self.passed:
            return Verdict.FAILED
        compared = any(row.checks for row in self.rows)
        return Verdict.PASSED if compared else Verdict.NOT_CHECKED

    @property
    def headline(self) -> str:
        """The whole result in one or two sentences."""
        bad = [row for row in self.rows if row.verdict.bad]
        checked = [row for row in self.rows if row.checks]
        idle = sum(row.outcome is Outcome.NOT_RUN for row in self.rows)
        if bad:
            text = f"FAILED: {named(f'{row.name} ({row.failure})' for row in bad)}."
        elif checked:
            names = named(row.name for row in checked)
            text = f"Passed: {names} match the reference.{self._fastest(checked)}"
        else:
            text = "Nothing was compared with the reference."
        return text + (f" {idle} of {len(self.rows)} rows did not run." if idle else "")

    def faster_than_clip(self, row: Row) -> Ratio | None:
        """Speed relative to the paper's model on whole clips."""
        return self._ratio(self._fellow(row, Role.CLIP), row)

    def time_of_peer(self, row: Row) -> Ratio | None:
        """Time relative to the peer's on the same device."""
        return self._ratio(row, self._fellow(row, Role.PEER))

    def precisions(self) -> list[Precision]:
        """A row for each precision of the bundle."""
        same = {
            row.contender.precision: check.value
            for row in self.rows
            if row.contender.role is Role.STREAM
            for check in row.checks
            if check.name == SAME_CLASS
        }
        return precisions(self.bundle, self.metrics, same)

    def slowdown(self, row: Row) -> Ratio | None:
        """Time of an 8-bit row relative to FP32 on the same backend; None for other rows."""
        if row.contender.precision not in EIGHT_BITS:
            return None
        wide = f"{row.name.partition(' ')[0]} fp32"
        return self._ratio(row, next((other for other in self.rows if other.name == wide), None))

    def to_json_lines(self) -> str:
        """One line per run, frame, row, cost, engine, bound and precision.

        `passed` is null if nothing was compared.
        """
        run = {
            "kind": "run",
            "bundle": facts(self.bundle),
            "options": {
                **asdict(self.options),
                "video": str(self.options.video or "synthetic"),
                "data": self.options.data and str(self.options.data),
            },
            "environment": dict(self.environment),
            "passed": None if self.verdict is Verdict.NOT_CHECKED else self.passed,
        }
        lines = [
            run,
            *self._frame_lines(),
            *(self._row_line(row) for row in self.rows),
            *(
                {"kind": "cost", "variant": name, **asdict(cost)}
                for name, variant in self.bundle.manifest.variants.items()
                for cost in variant.cost
            ),
            *(
                {"kind": "engine", "engine": engine, "part": part, **asdict(cost)}
                for engine, part, cost in self.plans()
            ),
            *({"kind": "bound", **asdict(ceiling)} for ceiling in ceilings(self.bundle)),
            *({"kind": "precision", **row.to_json()} for row in self.precisions()),
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def plans(self) -> list[tuple[str, str, PlanCost]]:
        """(engine, part, cost) of every compiled plan; the peer follows the engine."""
        found = []
        for engine in self.bundle.manifest.engines:
            found += [(engine.name, part, cost) for part, cost in engine.costs.items()]
            if engine.name in self.peer_costs:
                found.append((engine.name, "peer", self.peer_costs[engine.name]))
        return found

    def _fastest(self, rows: Sequence[Row]) -> str:
        row = min(rows, key=_median_ms)
        clip, peer = self.faster_than_clip(row), self.time_of_peer(row)
        text = f" The fastest, {row.name}, reaches {row.speed.fps:.1f} FPS" if row.speed else ""
        where = "" if row.contender.device is Device.CPU else " on the CPU"
        text += f", {clip} times as fast as the paper's model on clips{where}" if clip else ""
        text += f", {peer} of the time of single-frame SegFormer" if peer else ""
        return text + "."

    def _fellow(self, row: Row, role: Role) -> Row | None:
        found = [other for other in self.rows if other.contender.role is role and other.speed]
        if role is Role.PEER:  # the fastest of them, so that no slow runtime flatters us
            found = [each for each in found if each.contender.device == row.contender.device]
            found.sort(key=_median_ms)
        return next(iter(found), None)

    def _ratio(self, above: Row | None, below: Row | None) -> Ratio | None:
        if above is below or above is None or below is None:
            return None
        if above.speed is None or below.speed is None:
            return None
        return ratio(above.speed.pace, below.speed.pace)

    def _frame_lines(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": "frame",
                "row": row.name,
                "frame": self.options.warmup + number,
                "ms": seconds * 1e3,
                **{f"{part}_ms": values[number] * 1e3 for part, values in row.speed.parts.items()},
            }
            for row in self.rows
            if row.speed is not None
            for number, seconds in enumerate(row.speed.seconds)
        ]

    def _row_line(self, row: Row) -> dict[str, Any]:
        clip, peer = self.faster_than_clip(row), self.time_of_peer(row)
        return {
            "kind": "row",
            "row": row.name,
            "outcome": row.outcome.value,
            "reason": row.reason,
            "verdict": row.verdict.value,
            "speed": row.speed.to_json() if row.speed else None,
            "times_as_fast_as_eager_clip": asdict(clip) if clip else None,
            "time_over_peer": asdict(peer) if peer else None,
            "checks": [
                {
                    **check.to_json(),
                    "value": _finite(check.value),
                    "threshold": _finite(check.threshold),
                }
                for check in row.checks
            ],
            "drift": {str(mark): _finite(error) for mark, error in row.drift.items()},
            "footprint": asdict(row.footprint) if row.footprint else None,
            "gpu": {when: dict(state) for when, state in row.gpu.items()},
            "slowest_layers": [asdict(layer) for layer in row.layers],
        }


def _finite(value: float) -> float | None:
    """The value, or None for NaN and infinity, which JSON lacks."""
    return value if math.isfinite(value) else None


def _median_ms(row: Row) -> float:
    return row.speed.percentile_ms(50) if row.speed else math.inf
