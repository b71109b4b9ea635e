"""The report of a run, `report.html` and `curves.png`: loss, metrics and some frames."""

from base64 import b64encode
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.machine.extras import load
from mrcfa.machine.files import write_whole
from mrcfa.training.checkpoints import Facts
from mrcfa.training.validation import Strip

CURVES, REPORT = "curves.png", "report.html"
SMOOTHED = 50
"""Largest number of steps over which the loss is averaged; short runs use a tenth of theirs."""

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%}}figure{{margin:0 0 1rem}}
.strip{{display:grid;grid-template-columns:repeat(3,1fr);gap:.4rem}}
.classes i{{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}}
td,th{{text-align:left;padding:.1rem 1rem .1rem 0}}</style>
<h1>{title}</h1><p>{summary}</p><figure><img src="{curves}" alt="loss, learning rate and metrics">
</figure><h2>Frames, truth, masks</h2><p class="classes">{classes}</p>
<div class="strip">{strip}</div><h2>Recipe</h2>
<table>{recipe}</table></html>
"""


def write_report(run: Path, entries: list[dict[str, Any]], facts: Facts, strip: Strip) -> None:
    """Write the report from the entries of the log; this needs matplotlib and Pillow."""
    curves = _curves(entries)
    write_whole(run / CURVES, curves)
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(facts.labels.colours)] = facts.labels.colours
    cells = [
        _uri(_png(picture))
        for image, truth, mask in strip
        for picture in (image, palette[truth], palette[mask])
    ]
    recipe = {**vars(facts.recipe), "size": facts.config.size, "backbone": facts.config.backbone}
    score = "no validation yet" if facts.score is None else f"mIoU {facts.score:.4f}"
    config = facts.config
    title = f"{config.method.display_name} {config.backbone}, {config.classes} classes"
    page = _PAGE.format(
        title=title,
        summary=f"{facts.iteration} of {facts.recipe.iterations} iterations, {score}",
        curves=_uri(curves),
        strip="".join(f'<img src="{cell}" alt="frame, truth or mask">' for cell in cells),
        classes="".join(
            f'<i style="background:rgb{tuple(map(int, colour))}"></i>{escape(name)}'
            for name, colour in zip(facts.labels.names, facts.labels.colours, strict=True)
        ),
        recipe="".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in recipe.items()
        ),
    )
    write_whole(run / REPORT, page.encode())


def _curves(entries: list[dict[str, Any]]) -> bytes:
    figure = load("matplotlib.figure").Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    steps = [entry for entry in entries if "loss" in entry]
    numbers = [entry["iteration"] for entry in steps]
    losses = np.array([entry["loss"] for entry in steps], np.float64)
    left.plot(numbers, losses, color="0.8", linewidth=0.6)
    window = min(SMOOTHED, 1 + len(losses) // 10)
    left.plot(numbers, _smooth(losses, window), color="tab:blue")
    left.set(xlabel="iteration", title=f"loss, and its mean over {window} steps")
    middle.plot(numbers, [entry["rate"] for entry in steps], color="tab:blue")
    middle.set(xlabel="iteration", title="learning rate of the backbone")
    middle.ticklabel_format(axis="y", scilimits=(0, 0))
    tests = [entry for entry in entries if "miou" in entry]
    for name, label in (
        ("miou", "mIoU"),
        ("single_miou", "mIoU, single-frame head"),
        ("mvc8", "mVC8"),
        ("mvc16", "mVC16"),
    ):
        known = [(entry["iteration"], entry[name]) for entry in tests if entry[name] is not None]
        if known:
            right.plot(*zip(*known, strict=True), marker="o", markersize=3, label=label)
    right.set(xlabel="iteration", ylim=(0, 1), title="validation")
    if tests:
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=8)
    for axes in (left, middle, right):
        axes.title.set_fontsize(10)
        axes.xaxis.get_major_locator().set_params(integer=True)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()


def _smooth(losses: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Running mean over the last `window` steps, or over all so far at the start."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def _png(picture: NDArray[np.uint8]) -> bytes:
    pillow, content = load("PIL.Image"), BytesIO()
    image = pillow.fromarray(picture)
    image.thumbnail((320, 320))
    image.save(content, "PNG")
    return content.getvalue()


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{b64encode(png).decode()}"
