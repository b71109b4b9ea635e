"""A benchmark's result as rows of text, for the terminal, the README and the report."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mrcfa.benchmarks import precisions
from mrcfa.benchmarks.footprint import Footprint
from mrcfa.benchmarks.result import Outcome, Result, Row
from mrcfa.bundle.manifest import Device
from mrcfa.errors import named
from mrcfa.machine import hardware

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    "backend",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "mean ms",
    "FPS",
    "× eager-clip",
    "time / peer",
    "parity",
    "memory MB",
    "start s",
)
NOTHING = "–"
WIDTH = 180
"""Width in characters at which no cell needs a second line."""


def shown(result: Result) -> list[Row]:
    """Rows that ran; `notes` lists the others."""
    return [row for row in result.rows if row.outcome is not Outcome.NOT_RUN]


def cells(result: Result, row: Row) -> list[str]:
    """One text per column of `COLUMNS`."""
    speed, foot = row.speed, row.footprint
    slow = result.slowdown(row)
    return [
        row.name + (f", {slow.value:.1f} times as slow as fp32" if slow and slow.value > 1 else ""),
        *(f"{speed.percentile_ms(p):.1f}" if speed else NOTHING for p in (50, 90, 99)),
        f"{speed.mean_ms:.1f}" if speed else NOTHING,
        f"{speed.fps:.2f}" if speed else NOTHING,
        str(result.faster_than_clip(row) or NOTHING),
        str(result.time_of_peer(row) or NOTHING),
        row.verdict.value,
        memory_mb(foot),
        f"{foot.start_s:.1f}" if foot else NOTHING,
    ]


def memory_mb(footprint: Footprint | None) -> str:
    """The peak memory of a process, and what it took on the GPU."""
    peak = footprint and footprint.peak_bytes
    text = f"{peak / 1e6:.0f}" if peak else NOTHING
    if footprint and footprint.device_bytes is not None:
        text += f" + {footprint.device_bytes / 1e6:.0f} GPU"
    return text


def notes(result: Result) -> list[str]:
    """Sentences to print under the table: rows that did not run, failed checks, remarks."""
    found = [*_not_run(result)]
    found += [
        f"{row.name} {row.outcome.value}: {row.reason}" for row in shown(result) if row.reason
    ]
    found += [
        f"{row.name}: {check}" for row in result.rows for check in row.checks if not check.passed
    ]
    for row in result.rows:
        if row.layers:
            slow = named(f"{layer.layer} {layer.milliseconds:.3f} ms" for layer in row.layers)
            found.append(f"{row.name}, slowest layers: {slow}")
        found += [
            f"{row.name}, GPU {when} its block: {named(f'{k} {v}' for k, v in state.items())}"
            for when, state in row.gpu.items()
            if state
        ]
        if row.speed and "network" in row.speed.parts:
            server, network = (row.speed.part_ms(part) for part in ("server", "network"))
            found.append(
                f"{row.name}: p50 of a frame's time is {server:.1f} ms in the server, waiting "
                f"included, and {network:.1f} ms in network and client"
            )
        if row.speed and row.speed.intervals is not None:
            found.append(
                f"{row.name}: milliseconds are latency, from submit to mask with two frames in "
                "flight; FPS and ratios are throughput"
            )
        if row.footprint and row.footprint.stream_bytes is not None:
            more = row.footprint.stream_bytes / 1e6
            found.append(f"{row.name}: each further stream takes {more:.0f} MB of the GPU's memory")
    if any(
        row.contender.device is Device.GPU and result.faster_than_clip(row) for row in result.rows
    ):
        found.append("× eager-clip: the paper's model ran on the CPU, also for rows on a GPU")
    if any(map(result.slowdown, result.rows)):
        found.append(
            "8-bit variants are for GPUs: ONNX Runtime on a CPU rounds to 8 bits and computes in "
            "FP16 or FP32"
        )
    found += precisions.remarks(result.precisions())
    if result.unchecked:
        found.append(f"parity was not checked: {result.unchecked}")
    return found


def _not_run(result: Result) -> list[str]:
    """One line with all rows that did not run, grouped by reason."""
    names: dict[str, list[str]] = {}
    for row in result.rows:
        if row.outcome is Outcome.NOT_RUN:
            names.setdefault(row.reason, []).append(row.name)
    idle = "; ".join(f"{named(rows)} ({reason})" for reason, rows in names.items())
    return [f"not run: {idle}"] if idle else []


def idle_gpu(result: Result) -> list[str]:
    """Sentences about rows that did not run although the machine has a GPU, with the reasons."""
    idle = [row for row in result.rows if row.outcome is Outcome.NOT_RUN]
    return [f"{row.name} did not run: {row.reason}" for row in idle] if hardware.gpus() else []


def boundary(result: Result) -> str:
    """Sentence that names model, sizes, frames and machine; figures are never shown without it."""
    config, manifest, options = result.bundle.config, result.bundle.manifest, result.options
    size = "×".join(map(str, manifest.frame))
    rounds = f"times per camera of {manifest.streams} in a round; " if manifest.streams > 1 else ""
    return (
        f"{config.method.display_name} {config.backbone}, preset {config.dataset}, "
        f"frames of {size}, uint8 frame in to {manifest.output.value} out; "
        f"{rounds}{options.frames} frames after a warm-up of {options.warmup}; "
        f"{result.environment['processor']}, threads: {options.threads}"
    )


def rich_table(result: Result) -> "Table":
    return markdown_table(COLUMNS, [cells(result, row) for row in shown(result)])


def precision_table(result: Result) -> "Table":
    """Table that compares the bundle's precisions."""
    return markdown_table(precisions.COLUMNS, [row.cells() for row in result.precisions()])


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """Table in Markdown's format, ready to paste into a page."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.MARKDOWN)
    for column in columns:
        left = column in ("backend", "parity", "precision", "engine")
        table.add_column(column, justify="left" if left else "right")
    for row in rows:
        table.add_row(*row)
    return table
