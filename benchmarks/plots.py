"""The report's plots as inline SVG, in the page's colours (light or dark)."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from mrcfa.benchmarks.cost import intensity
from mrcfa.benchmarks.speed import Speed
from mrcfa.bundle.manifest import Cost, Quantization
from mrcfa.machine.gpu_models import GpuModel

WIDTH = 5.6
"""Width in inches of 72 SVG units: 12-unit letters stay readable on a phone."""

# Matplotlib draws with these placeholders; `_themed` replaces them by variables of the page's style
# sheet: --ink, --s0, ….
INK, LINE = "#010101", "#020202"
SERIES = tuple(f"#0301{number:02x}" for number in range(8))
_VARIABLES = {INK: "--ink", LINE: "--line"} | {
    colour: f"--s{number}" for number, colour in enumerate(SERIES)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 12,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 11,
}


def latency_distribution(speeds: dict[str, Speed]) -> str:
    """Box plot per backend: a box from the first to the third quartile, and a dot per frame."""
    with _plot("Latency of every frame, by backend", 1.1 + 0.5 * len(speeds)) as (axes, done):
        jitter = np.random.default_rng(0)
        for height, speed in enumerate(reversed(speeds.values())):
            colour = SERIES[(len(speeds) - 1 - height) % len(SERIES)]
            times = speed.seconds * 1e3
            axes.scatter(
                times,
                height + jitter.uniform(-0.14, 0.14, len(times)),
                s=9,
                color=colour,
                alpha=0.55,
                linewidths=0,
            )
            axes.boxplot(
                times,
                positions=[height],
                orientation="horizontal",
                widths=0.5,
                showfliers=False,
                boxprops={"color": colour},
                whiskerprops={"color": colour},
                capprops={"color": colour},
                medianprops={"color": colour, "linewidth": 2.5},
            )
        axes.set_yticks(range(len(speeds)), [_short(name) for name in reversed(speeds)])
        axes.grid(axis="y", visible=False)
        _log_ms(axes, "x")
    return done()


def timeline(speeds: dict[str, Speed], warmup: int) -> str:
    with _plot("Latency over time", 4) as (axes, done):
        for number, (name, speed) in enumerate(speeds.items()):
            times = speed.seconds * 1e3
            frames = warmup + np.arange(len(times))
            colour = SERIES[number % len(SERIES)]
            axes.plot(frames, times, color=colour, linewidth=1.4, label=name)
        axes.set_xlabel("frame")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _log_ms(axes, "y")
        axes.figure.legend(loc="outside lower center", ncols=1)
    return done()


def stage_breakdown(speeds: dict[str, Speed]) -> str:
    """Bars of the median time of each part; a backend without parts has a single bar."""
    rows = speeds.values()
    shares = {
        part: np.array([speed.part_ms(part) if part in speed.parts else 0.0 for speed in rows])
        for part in dict.fromkeys(part for speed in rows for part in speed.parts)
    }
    shares["undivided"] = np.array([0.0 if s.parts else s.percentile_ms(50) for s in rows])
    with _plot("Time of a frame by part", 1.3 + 0.45 * len(speeds)) as (axes, done):
        heights = np.arange(len(speeds))[::-1]
        left = np.zeros(len(speeds))
        for number, (part, widths) in enumerate(shares.items()):
            colour = SERIES[-1] if part == "undivided" else SERIES[number]
            axes.barh(heights, widths, 0.6, left, color=colour, label=part)
            left += widths
        axes.set_yticks(heights, [_short(name) for name in speeds])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ms")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.figure.legend(loc="outside lower center", ncols=3)
    return done()


def sensitivity_curve(found: Quantization) -> str:
    """Loss against the number of blocks in 8 bits, with the allowed loss and the chosen point."""
    counts, losses = zip(*found.curve, strict=True)
    with _plot("Loss against the number of blocks in 8 bits", 3.2) as (axes, done):
        axes.axhline(found.allowed_loss, color=INK, linewidth=1, linestyle="--", label="allowed")
        axes.plot((0, *counts), (0.0, *losses), color=SERIES[0], linewidth=1.6)
        axes.scatter(counts, losses, s=40, facecolors="none", edgecolors=SERIES[0], zorder=3)
        axes.scatter([len(found.blocks)], [found.loss], s=50, color=SERIES[0], zorder=4)
        axes.set_xlabel(f"blocks in 8 bits, of {len(found.blocks) + len(found.fp16)}")
        axes.set_ylabel(f"points of {found.measure} lost")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper left")
    return done()


def roofline(costs: Sequence[Cost], gpu: GpuModel) -> str:
    """Roofline of one GPU with a dot per stage: an upper bound, not a measurement."""
    stages = [cost for cost in costs if cost.multiply_adds]
    with _plot(f"Roofline of {gpu.name} (a bound)", 3.4) as (axes, done):
        ridge = gpu.tflops * 1e3 / gpu.gb_per_s
        xs = np.geomspace(min(1, *map(intensity, stages)), 4 * max(ridge, *map(intensity, stages)))
        axes.loglog(xs, np.minimum(gpu.tflops, xs * gpu.gb_per_s / 1e3), color=INK, linewidth=1.6)
        largest = max(cost.multiply_adds for cost in stages)
        for number, graph in enumerate(dict.fromkeys(cost.graph for cost in stages)):
            own = [cost for cost in stages if cost.graph == graph]
            x = np.array([intensity(cost) for cost in own])
            axes.scatter(
                x,
                np.minimum(gpu.tflops, x * gpu.gb_per_s / 1e3),
                s=[20 + 160 * cost.multiply_adds / largest for cost in own],
                color=SERIES[number],
                alpha=0.75,
                linewidths=0,
                label=f"stages of the {graph}",
                zorder=3,
            )
        axes.set_xlabel("FLOP per byte moved (larger dot: more work)")
        axes.set_ylabel("TFLOP/s at most")
        axes.legend(loc="lower right")
    return done()


@contextmanager
def _plot(title: str, height: float) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yield axes to draw on, and a function that returns the SVG after the block has ended."""
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": title}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        text = StringIO()
        yield axes, lambda: _themed(text.getvalue(), title)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})


def _themed(svg: str, title: str) -> str:
    """The bare <svg> element, scalable, with style-sheet variables as colours."""
    svg = svg[svg.index("<svg") :]
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _short(name: str) -> str:
    """The name on two lines, which leaves more room for the plot."""
    return name.replace(" ", "\n", 1)


def _log_ms(axes: Any, which: str) -> None:
    """Make an axis logarithmic in ms, with plain numbers: 200, not 2×10²."""
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}label")("ms")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
