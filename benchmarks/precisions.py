"""Comparison of a bundle's precisions: accuracy, bytes written, memory and file size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from mrcfa.benchmarks.candidate import Candidate
from mrcfa.benchmarks.evaluate import EvalOptions, evaluate, forget, nulls, percent
from mrcfa.bundle import Bundle
from mrcfa.bundle.inspection import quantization_lines
from mrcfa.bundle.manifest import Device, Engine, Quantization

PROVIDER = "onnxruntime:cpu"
"""The backend that computes the metrics, because it runs every precision on any machine."""
COLUMNS = (
    "precision",
    "mIoU",
    "mVC8",
    "mVC16",
    "same pixels",
    "in 8 bits",
    "engine",
    "MB written",
    "MB activations",
    "MB of graphs",
)
_PREFERRED_SMS = (86, 89, 75)
"""Each row shows the engine for the first of these GPUs that has one, so that bytes compare."""


@dataclass(frozen=True)
class Precision:
    """One row of the comparison. Values that were not measured are None."""

    name: str
    metrics: Mapping[str, float] | None
    """mIoU, mVC8 and mVC16 on a dataset, if one was named."""
    agreement: float | None
    """Share of pixels with the reference's class, on the benchmark's frames."""
    engine: str | None
    bytes_written: int | None
    """Bytes written per frame, from the compiler's list of kernels."""
    activation_bytes: int | None
    file_bytes: int
    quantization: Quantization | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "metrics": nulls(self.metrics) if self.metrics else None}

    def cells(self) -> list[str]:
        """One text per column of `COLUMNS`."""
        metrics = self.metrics or {}
        eight = self.quantization
        return [
            self.name,
            *(percent(metrics.get(name)) for name in ("mIoU", "mVC8", "mVC16")),
            percent(self.agreement),
            f"{eight.shares['encoder']:.0%}" if eight else "–",
            self.engine or "–",
            *map(megabytes, (self.bytes_written, self.activation_bytes, self.file_bytes)),
        ]


def precisions(
    bundle: Bundle, metrics: Mapping[str, Mapping[str, float]], agreements: Mapping[str, float]
) -> list[Precision]:
    """One row per precision of the bundle, in the manifest's order."""
    manifest, rows = bundle.manifest, []
    for name in dict.fromkeys(variant.precision for variant in manifest.variants.values()):
        variant = bundle.variant(Device.CPU, name)
        engine = _shown(name, manifest.engines)
        costs = list(engine.costs.values()) if engine else []
        held = [cost.activation_bytes for cost in costs]
        rows.append(
            Precision(
                name=name,
                metrics=metrics.get(name),
                agreement=agreements.get(name),
                engine=engine.name if engine else None,
                bytes_written=sum(cost.bytes_written for cost in costs) if costs else None,
                activation_bytes=sum(count or 0 for count in held) if any(held) else None,
                file_bytes=sum(
                    manifest.files[graph.file].bytes for graph in variant.graphs.values()
                ),
                quantization=variant.quantization,
            )
        )
    return rows


def measured(
    bundle: Bundle, options: EvalOptions, show: Callable[[str, float], None]
) -> dict[str, Mapping[str, float]]:
    """Precision -> metrics on a dataset; an interrupted run resumes, as in `mrcfa eval`."""
    found = {}
    variants = bundle.manifest.variants.values()
    for name in dict.fromkeys(variant.precision for variant in variants):
        candidate = Candidate(Path(bundle.path), PROVIDER, precision=name)
        done = evaluate(candidate, options, _advancing(f"{name} on {options.root}", show))
        found[name] = done.metrics
        forget(done)
    return found


def megabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.1f}"


def remarks(rows: Sequence[Precision]) -> list[str]:
    """Sentences that explain the 8-bit rows."""
    return [
        f"{row.name}: {'; '.join(quantization_lines(row.quantization))}"
        for row in rows
        if row.quantization
    ]


def _shown(precision: str, engines: Sequence[Engine]) -> Engine | None:
    fitting = [engine for engine in engines if engine.precision == precision and engine.costs]
    preferred = (
        engine for sm in _PREFERRED_SMS for engine in fitting if sm in engine.compute_capabilities
    )
    return next(chain(preferred, fitting), None)


def _advancing(name: str, show: Callable[[str, float], None]) -> Callable[..., None]:
    count, whole = 0, 1

    def advance(total: int | None = None) -> None:
        nonlocal count, whole
        if total is None:
            count += 1
        else:
            whole = total
        show(name, count / whole)

    return advance
