"""`mrcfa bench --sizes`: growth of time, memory and bytes with the number of pixels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mrcfa.backends import Backend, Unfit
from mrcfa.benchmarks.clip import benchmark_clip, looped
from mrcfa.benchmarks.contenders import Contender, Role, contenders
from mrcfa.benchmarks.footprint import footprint
from mrcfa.benchmarks.result import BenchOptions
from mrcfa.benchmarks.speed import Speed, Stopwatch
from mrcfa.benchmarks.table import NOTHING, markdown_table
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device
from mrcfa.errors import Unsupported
from mrcfa.machine.extras import MissingExtra

if TYPE_CHECKING:
    from rich.table import Table

Show = Callable[[str, float], None]


@dataclass(frozen=True)
class SizeRow:
    """Figures of one bundle on the first backend that runs it here."""

    size: tuple[int, int]
    backend: str
    speed: Speed
    peak_bytes: int | None
    """Peak memory of a process that runs this backend alone."""
    engine: str | None
    """The most recent engine with a recorded cost."""
    bytes_written: int | None
    """Bytes that this engine writes per frame."""
    activation_bytes: int | None
    """Activation memory of this engine; encoder and decoder share it."""

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def figures(self) -> dict[str, float | None]:
        return {
            "p50 ms": self.speed.percentile_ms(50),
            "memory MB": self.peak_bytes and self.peak_bytes / 1e6,
            "engine: MB written": self.bytes_written and self.bytes_written / 1e6,
            "engine: MB activations": self.activation_bytes and self.activation_bytes / 1e6,
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "size",
            "size": list(self.size),
            "pixels": self.pixels,
            "backend": self.backend,
            "engine": self.engine,
            **{name.replace(": ", "_").replace(" ", "_"): x for name, x in self.figures.items()},
        }


def measure_size(path: Path, options: BenchOptions, show: Show) -> SizeRow:
    bundle = Bundle.open(path)
    chosen, backend = _first_that_runs(bundle, options)
    clip = benchmark_clip(bundle, options.video, options.frames)
    watch, rounds = Stopwatch(backend), options.warmup + options.frames
    for number, image in enumerate(looped(clip, rounds), start=1):
        watch.step(image)
        show(f"{bundle.path.name}, {chosen.name}", number / rounds)
    speed = watch.speed(options.warmup)
    if chosen.device is Device.GPU:
        speed = Stopwatch(backend).back_to_back(clip, options.frames)
    engines = reversed(bundle.manifest.engines)
    engine = next((engine for engine in engines if engine.costs), None)
    costs = engine.costs.values() if engine else ()
    activations = [cost.activation_bytes for cost in costs if cost.activation_bytes is not None]
    return SizeRow(
        bundle.config.size,
        chosen.name,
        speed,
        footprint(path, chosen.name, options.threads).peak_bytes,
        None if engine is None else engine.name,
        sum(cost.bytes_written for cost in costs) or None,
        max(activations, default=None),
    )


def exponents(rows: Sequence[SizeRow]) -> dict[str, float | None]:
    """Exponent n of value ∝ pixelsⁿ for each figure that all rows have; 1 is linear growth."""
    pixels = np.log([row.pixels for row in rows])
    found: dict[str, float | None] = {}
    for name in rows[0].figures:
        values = [value for row in rows if (value := row.figures[name])]
        whole = len(values) == len(rows) > 1
        found[name] = float(np.polyfit(pixels, np.log(values), 1)[0]) if whole else None
    return found


def sizes_table(rows: Sequence[SizeRow]) -> "Table":
    lines = []
    for row in rows:
        height, width = row.size
        figures = (f"{x:.1f}" if x else NOTHING for x in row.figures.values())
        lines.append([row.backend, f"{height}x{width}", f"{row.pixels / 1e6:.2f}", *figures])
    growth = ("" if n is None else f"pixels^{n:.2f}" for n in exponents(rows).values())
    lines.append(["growth", "", "", *growth])
    return markdown_table(("backend", "size", "megapixels", *rows[0].figures), lines)


def _first_that_runs(bundle: Bundle, options: BenchOptions) -> tuple[Contender, Backend]:
    reasons = []
    for row in contenders(bundle, options.backends, options.threads, peer=False):
        if row.role is Role.STREAM and not row.pipelined:
            try:
                return row, row.open()
            except (MissingExtra, Unfit) as error:
                reasons.append(f"{row.name}: {error}")
    raise Unsupported(
        f"no backend runs {bundle.path} here ({'; '.join(reasons) or 'none is named'})"
    )
