"""The tables of docs/benchmarks.md and README, written from one file for each measured machine.

    python -m mrcfa.benchmarks.machines

`benchmarks/results` holds reports as they are: `.jsonl` is by `mrcfa bench --json`, `.json` by
`mrcfa selftest --json`. In a page the text between two marks is replaced: `<!-- benches -->` to
`<!-- end of benches -->`, and likewise for `selftests` and `speed`. Text for which there is no
report yet stays.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrcfa.benchmarks.footprint import Footprint
from mrcfa.benchmarks.result import Outcome
from mrcfa.benchmarks.speed import Ratio
from mrcfa.benchmarks.table import COLUMNS, NOTHING, memory_mb
from mrcfa.errors import Damaged
from mrcfa.machine.files import write_whole
from mrcfa.model.config import Method
from mrcfa.selftest.line import Outcome as Checked
from mrcfa.selftest.selftest import MASKS

Json = Mapping[str, Any]

_RESULTS, _PAGES = Path("benchmarks/results"), (Path("docs/benchmarks.md"), Path("README.md"))
_FACTS = (
    "commit",
    "board",
    "GPU driver",
    "GPU SM clock",
    "GPU highest SM clock",
    "GPU memory clock",
    "GPU power limit",
    "power mode",
    "tensorrt",
    "tensorrt_rtx",
    "onnxruntime",
    "torch",
    "load before the run",
)
"""Facts of an environment that a page shows; the reports have all others."""
_IN_README = {
    "eager-clip": "the paper's model, four frames encoded for each mask, PyTorch",
    "eager": "the stream, PyTorch",
    "onnxruntime:cpu fp32": "**the stream, ONNX Runtime FP32**",
}
"""Rows of README's table, with their words there."""


def benches(results: Path) -> str:
    """A section for each report of `mrcfa bench`: its machine, its options and its rows."""
    sections = []
    for path in sorted(results.glob("*.jsonl")):
        run, rows = _bench(path)
        texts = [_cells(row) for row in rows if row["outcome"] != Outcome.NOT_RUN.value]
        idle = [row for row in rows if row["outcome"] == Outcome.NOT_RUN.value]
        words = [f"### {_machine(run['environment'])}", _boundary(run), _markdown(COLUMNS, texts)]
        if idle:
            words.append("Not run: " + "; ".join(f"{r['row']} ({r['reason']})" for r in idle) + ".")
        sections.append("\n\n".join(words))
    return "\n\n".join(sections)


def selftests(results: Path) -> str:
    """A row for each report of `mrcfa selftest`, with the ways that matched the reference."""
    rows = []
    for path in sorted(results.glob("*.json")):
        report = _selftest(path)
        matched = [
            _matched(line["subject"], line["facts"])
            for line in report["lines"]
            if line["check"] == MASKS and line["outcome"] == Checked.WORKS.value
        ]
        at_work = next(line for line in report["lines"] if line["check"] == "GPU at work")
        counts = report["verdict"].rpartition(". ")[2]
        environment = report["environment"]
        rows.append(
            [
                _machine(environment),
                report["bundle"]["name"],
                f"{counts} GPU at work: {at_work['outcome']}",
                "<br>".join(matched) or NOTHING,
                f"{environment['date']}, {_facts(environment)}",
            ]
        )
    if not rows:
        return ""
    columns = ("machine", "bundle", "checks", "pixels with the reference's class", "run")
    return _markdown(columns, rows)


def speed(results: Path) -> str:
    """README's table: the paper's model and the stream, from the first report that has them."""
    for path in sorted(results.glob("*.jsonl")):
        rows = {row["row"]: row for row in _bench(path)[1]}
        if all(name in rows and rows[name]["speed"] for name in _IN_README):
            break
    else:
        return ""
    peer = next(name for name in rows if name.startswith("segformer"))
    texts: list[list[str]] = []
    for name, words in _IN_README.items():
        clip, bold = rows[name]["times_as_fast_as_eager_clip"], "**" * words.startswith("**")
        ratio = f"{clip['value']:.1f}×" if clip else "1×"
        of_peer = f"{rows[name]['time_over_peer']['value']:.2f}×"
        figures = (f"{rows[name]['speed']['p50_ms']:.0f}", ratio, of_peer)
        texts.append([words, *(f"{bold}{figure}{bold}" for figure in figures)])
    title = peer.partition(" ")[0].replace("segformer", "SegFormer")
    columns = (
        "",
        "ms per mask",
        "speed, relative to the paper's clip model",
        f"time, relative to single-frame {title}",
    )
    return _markdown(columns, texts)


TABLES: Mapping[str, Callable[[Path], str]] = {
    "benches": benches,
    "selftests": selftests,
    "speed": speed,
}
"""The word in a page's marks -> what stands between them."""


def updated(page: str, results: Path) -> str:
    """The text of a page, with each table written anew for which there are reports."""
    for word, table in TABLES.items():
        marked = re.compile(rf"(<!-- {word} -->\n).*?(<!-- end of {word} -->)", re.DOTALL)
        text = table(results)
        if text and (found := marked.search(page)):
            start, end = page[: found.end(1)], page[found.start(2) :]
            page = f"{start}\n{text}\n\n{end}"
    return page


def _bench(path: Path) -> tuple[Json, list[Json]]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        (run,) = (line for line in lines if line["kind"] == "run")
        return run, [line for line in lines if line["kind"] == "row"]
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{path} is not what mrcfa bench --json writes") from None


def _selftest(path: Path) -> Json:
    try:
        report: Json = json.loads(path.read_text(encoding="utf-8"))
        if report["kind"] != "selftest" or not report["complete"]:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{path} is not what a finished mrcfa selftest --json writes") from None
    return report


def _matched(way: str, facts: Json) -> str:
    text = f"{way}: {facts['value']:.2%}"
    if "ms_per_frame" in facts:
        text += f", {facts['ms_per_frame']:.0f} ms a frame"
    clocks = [f"{name} {facts['gpu'][name]}" for name in facts.get("gpu", {}) if "clock" in name]
    return f"{text} ({', '.join(clocks)})" if clocks else text


def _machine(environment: Mapping[str, str]) -> str:
    gpu = environment.get("GPU name") or environment.get("GPU")
    return f"{gpu}; {environment['processor']}" if gpu else f"{environment['processor']}, no GPU"


def _boundary(run: Json) -> str:
    bundle, options, environment = run["bundle"], run["options"], run["environment"]
    config, size = bundle["config"], "×".join(map(str, bundle["frame"]))
    return (
        f"{Method(config['method']).display_name} {config['backbone']}, preset "
        f"{config['dataset']}, frames of {size}, uint8 frame in to {bundle['output']} out; "
        f"{options['frames']} frames after a warm-up of {options['warmup']}; threads: "
        f"{options['threads']}. {environment['date']}, {_facts(environment)}."
    )


def _facts(environment: Mapping[str, str]) -> str:
    known = {name: environment[name] for name in _FACTS if name in environment}
    if "commit" in known:
        digest, _, changes = known["commit"].partition(" ")
        known["commit"] = f"{digest[:7]} {changes}".strip()
    return ", ".join(f"{name} {text}" for name, text in known.items())


def _cells(row: Json) -> list[str]:
    """One text for each column of `table.COLUMNS`."""
    speed, foot = row["speed"], row["footprint"]
    figures = ("p50_ms", "p90_ms", "p99_ms", "mean_ms")
    ratios = (row["times_as_fast_as_eager_clip"], row["time_over_peer"])
    return [
        row["row"],
        *(f"{speed[figure]:.1f}" if speed else NOTHING for figure in figures),
        f"{speed['fps']:.2f}" if speed else NOTHING,
        *(str(Ratio(**ratio)) if ratio else NOTHING for ratio in ratios),
        row["verdict"],
        memory_mb(Footprint(**foot) if foot else None),
        f"{foot['start_s']:.1f}" if foot else NOTHING,
    ]


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Write the pages of the clone that is the current folder."""
    for path in _PAGES:
        text = path.read_text(encoding="utf-8")
        write_whole(path, updated(text, _RESULTS).encode())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
