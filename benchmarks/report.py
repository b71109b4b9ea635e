"""The benchmark's report: one self-contained HTML file."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from mrcfa.benchmarks import precisions
from mrcfa.benchmarks.cost import PAPER_FPS, bounded_variant, ceilings, intensity, totals
from mrcfa.benchmarks.plots import (
    latency_distribution,
    roofline,
    sensitivity_curve,
    stage_breakdown,
    timeline,
)
from mrcfa.benchmarks.result import Outcome, Result, Verdict
from mrcfa.benchmarks.strip import difference_picture, frame_picture, mask_picture
from mrcfa.benchmarks.table import COLUMNS, NOTHING, boundary, cells, notes, shown
from mrcfa.bundle.manifest import Cost, Output
from mrcfa.machine.gpu_models import GPU_MODELS, PAPER_GPU, GpuModel, known_gpu

_SIGNS = {"<=": "≤", ">=": "≥"}
_STATUS = {Verdict.PASSED: "passed", Verdict.FAILED: "failed", Verdict.STOPPED: "failed"}
_LOOKS = {verdict.value: look for verdict, look in _STATUS.items()} | {NOTHING: "nothing"}
"""Text of a cell -> the CSS class of the cell."""


def report(result: Result) -> str:
    """The whole HTML page."""
    template = files("mrcfa.benchmarks").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        bundle=escape(str(result.bundle.path)),
        boundary=escape(boundary(result)),
        status=_STATUS.get(result.verdict, ""),
        headline=escape(result.headline),
        caution=_caution(result),
        backends=_backends(result),
        notes=_list(notes(result)),
        speed_plots=_speed_plots(result),
        parts=_parts(result),
        checks=_checks(result),
        drift=_drift(result),
        precisions=_precisions(result),
        strip=_strip(result),
        cost=_cost(result),
        environment="".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
            for name, value in result.environment.items()
        ),
    )


def _caution(result: Result) -> str:
    if not result.bundle.manifest.weights.random:
        return ""
    text = "The weights are random: masks mean nothing, while parity and speed are real."
    return f'<p class="note">{text}</p>'


def _backends(result: Result) -> str:
    rows = shown(result)
    stopped = [row.name for row in rows if row.outcome is Outcome.STOPPED]
    return _table(COLUMNS, [cells(result, row) for row in rows], stopped)


def _speed_plots(result: Result) -> str:
    timed = {row.name: row.speed for row in result.rows if row.speed is not None}
    if not timed:
        return "<p>Nothing ran, so there is nothing to plot.</p>"
    return "".join(
        (
            _figure(
                "Latency",
                latency_distribution(timed),
                "One dot per frame; the box spans the quartiles. Latency is measured from a frame "
                f"in host memory to its {result.bundle.manifest.output.value} in host memory.",
            ),
            _figure(
                "Latency over time",
                timeline(timed, result.options.warmup),
                "Every frame passes through all backends before the next one, so a slow moment of "
                "the machine shows in all of them.",
            ),
            _figure(
                "Parts of a frame",
                stage_breakdown(timed),
                "Medians. The clip model and the peer cannot be divided into parts.",
            ),
        )
    )


def _parts(result: Result) -> str:
    divided = {row.name: row.speed for row in result.rows if row.speed and row.speed.parts}
    if not divided:
        return ""
    parts = list(dict.fromkeys(part for speed in divided.values() for part in speed.parts))
    rows = [
        [
            name,
            *(f"{speed.part_ms(part):.1f}" if part in speed.parts else NOTHING for part in parts),
        ]
        for name, speed in divided.items()
    ]
    return f"<h3>Parts</h3>{_table(['backend', *(f'{part} ms' for part in parts)], rows)}"


def _checks(result: Result) -> str:
    rows = [
        [
            row.name,
            check.name,
            f"{check.value:.4g}",
            f"{_SIGNS[check.operator]} {check.threshold:.4g}",
            (Verdict.PASSED if check.passed else Verdict.FAILED).value,
        ]
        for row in result.rows
        for check in row.checks
    ]
    if not rows:
        return "<p>Nothing was compared.</p>"
    return _table(("backend", "figure", "value", "limit", "verdict"), rows)


def _precisions(result: Result) -> str:
    """Table of all precisions, and for 8-bit ones a plot of loss against the number of blocks."""
    rows = result.precisions()
    plots = [
        _figure(
            f"Loss of accuracy in 8 bits: {row.name}",
            sensitivity_curve(row.quantization),
            f"Points of {row.quantization.measure} lost on {row.quantization.frames} frames of "
            f"{row.quantization.data}; the least sensitive blocks are rounded first. The filled "
            "dot is the number of blocks that was chosen.",
        )
        for row in rows
        if row.quantization
    ]
    return _table(precisions.COLUMNS, [row.cells() for row in rows]) + "".join(plots)


def _drift(result: Result) -> str:
    followed = [row for row in result.rows if row.drift]
    if not followed:
        return ""
    stops = list(followed[0].drift)
    rows = [[row.name, *(f"{row.drift[mark]:.3g}" for mark in stops)] for row in followed]
    what = "Share of pixels that differ"
    if result.bundle.manifest.output is Output.LOGITS:
        what = "Largest logit error as a share of the range"
    columns = ["backend", *(f"frame {mark}" for mark in stops)]
    return (
        f"<h3>Drift</h3>{_table(columns, rows)}"
        f'<p class="note">{what}, in one long stream that shows the same images before each of '
        "these frames: a state that accumulated errors would make it grow.</p>"
    )


def _strip(result: Result) -> str:
    palette = np.array(result.bundle.manifest.palette, np.uint8)
    blocks = []
    for number, image in result.pictures.items():
        pictures = [_picture(frame_picture(image), f"frame {number}")]
        wanted = result.wanted.get(number)
        if wanted is not None:
            pictures.append(_picture(mask_picture(wanted, palette), "eager"))
        for row in result.rows:
            if row.contender.compared and wanted is not None and number in row.masks:
                mask = row.masks[number]
                pictures.append(
                    _picture(
                        mask_picture(mask, palette),
                        f"{row.name}: {(mask != wanted).mean():.3%} differ",
                        difference_picture(mask, wanted),
                    )
                )
        blocks.append(f'<div class="strip">{"".join(pictures)}</div>')
    return "".join(blocks)


def _cost(result: Result) -> str:
    variants = result.bundle.manifest.variants
    bounded = bounded_variant(result.bundle)
    shown = bounded or next(iter(variants.values()))
    costs = shown.cost
    counted = ("stage", "G multiply-adds", "MB moved", "FLOP/byte")
    figures = [[_stage(cost), *_figures(cost)] for cost in costs]
    figures.append(["total", *_figures(totals(costs))])
    what = (
        "multiply-adds of convolutions and matrix products, and the bytes that every operator "
        "reads and writes"
    )
    if bounded is None:
        return (
            f'<p class="note">Counted in the {shown.precision} graphs: {what}. Bounds need FP16 '
            f"graphs, which this bundle does not have.</p>{_table(counted, figures)}"
        )
    gpu = _here(result) or GPU_MODELS[0]
    seconds = [gpu.seconds(cost.multiply_adds, cost.bytes_moved) for cost in costs]
    times = [*seconds, sum(seconds)]  # stages run one after the other
    sides = [*(gpu.bound(cost.multiply_adds, cost.bytes_moved) for cost in costs), NOTHING]
    rows = [
        [*row, f"{time * 1e3:.3f}", side]
        for row, time, side in zip(figures, times, sides, strict=True)
    ]
    return (
        f'<p class="note">Counted in the fp16 graphs: {what}. Times are roofline bounds of '
        f"{escape(gpu.name)} in FP16 with nothing fused, not measurements.</p>"
        f"{_table((*counted, 'ms, nothing fused', 'bound by'), rows)}"
        f"{_plans(result)}"
        "<h3>Upper bounds on GPUs</h3>"
        f'<div class="pair"><div>{_ceilings(result)}</div>{_roofline(costs, gpu)}</div>'
    )


def _plans(result: Result) -> str:
    """Table of the compiled plans: both graphs of each engine, and the peer."""
    rows = [
        [
            f"{engine}: {part}",
            str(cost.kernels),
            precisions.megabytes(cost.bytes_written),
            precisions.megabytes(cost.bytes_read),
            precisions.megabytes(cost.activation_bytes),
            precisions.megabytes(cost.weights_bytes),
        ]
        for engine, part, cost in result.plans()
    ]
    if not rows:
        return ""
    columns = ("plan", "kernels", "MB written", "MB read", "MB activations", "MB weights")
    return (
        f"<h3>Compiled engines</h3>{_table(columns, rows)}"
        '<p class="note">Per frame, from TensorRT\'s list of kernels; not measured. The peer is '
        "single-frame SegFormer, built for the same GPUs.</p>"
    )


def _ceilings(result: Result) -> str:
    columns = (
        "GPU",
        "TFLOP/s",
        "GB/s",
        "FPS, nothing fused",
        "FPS, the engine's kernels",
        "FPS, ceiling",
    )
    rows = [
        [
            ceiling.gpu.name,
            f"{ceiling.gpu.tflops:g}",
            f"{ceiling.gpu.gb_per_s:g}",
            f"{ceiling.unfused_fps:.0f}",
            NOTHING if ceiling.engine_fps is None else f"{ceiling.engine_fps:.0f}",
            f"{ceiling.fps:.0f}",
        ]
        for ceiling in ceilings(result.bundle)
    ]
    return (
        f"{_table(columns, rows)}"
        '<p class="note">Upper bounds from published peaks, not measurements. “Nothing fused”: '
        "every operator reads and writes memory. “The engine's kernels”: every kernel of the built "
        "engine reads and writes memory and is launched once. “Ceiling”: only weights, frames and "
        "state pass through memory. "
        f"The paper reports {PAPER_FPS} FPS for MiT-B1 at 480×853 on a {PAPER_GPU}.</p>"
    )


def _roofline(costs: Sequence[Cost], gpu: GpuModel) -> str:
    return _figure(
        f"Roofline of {gpu.name}",
        roofline(costs, gpu),
        "An upper bound, not a measurement: each dot is a stage with nothing fused, drawn on the "
        "roof.",
    )


def _stage(cost: Cost) -> str:
    return f"{cost.graph}: {cost.stage.removeprefix(f'{cost.graph}/')}"


def _figures(cost: Cost) -> list[str]:
    return [
        f"{cost.multiply_adds / 1e9:.2f}",
        f"{cost.bytes_moved / 1e6:.1f}",
        f"{intensity(cost):.1f}",
    ]


def _here(result: Result) -> GpuModel | None:
    """This machine's GPU in the table of published peaks; None if the table lacks it."""
    found = result.environment
    return known_gpu(found.get("board", "")) or known_gpu(found.get("GPU name", ""))


def _picture(uri: str, caption: str, *below: str) -> str:
    uris = (uri, *below)
    images = "".join(f'<img src="{source}" alt="{escape(caption)}">' for source in uris)
    return f"<figure>{images}<figcaption>{escape(caption)}</figcaption></figure>"


def _figure(title: str, svg: str, caption: str) -> str:
    return (
        f"<figure><strong>{escape(title)}</strong>{svg}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], idle: Collection[str] = ()
) -> str:
    """HTML table; on a narrow page each row becomes a card that names its columns."""
    head = "".join(f'<th class="{_look(column)}">{escape(column)}</th>' for column in columns)
    body = []
    for name, *texts in rows:
        texts_html = "".join(
            f'<td data-label="{escape(column)}" class="{_look(column, text)}">{escape(text)}</td>'
            for column, text in zip(columns[1:], texts, strict=True)
        )
        kind = "idle" if name in idle else ""
        body.append(f'<tr class="{kind}"><th>{escape(name)}</th>{texts_html}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _look(column: str, text: str = "") -> str:
    return _LOOKS.get(text, "left" if column == "figure" else "")


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""
