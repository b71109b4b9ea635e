"""`mrcfa bench` and `mrcfa eval`."""

import json
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.backends import records
from mrcfa.backends.address import check_order
from mrcfa.backends.records import ColdStart
from mrcfa.benchmarks.contenders import CHOICES, USUAL
from mrcfa.bundle import Bundle
from mrcfa.console.arguments import AsJson, parse_names, parse_size
from mrcfa.console.progress import counting, filling
from mrcfa.errors import InvalidValue, Mismatch, named
from mrcfa.machine.extras import MissingExtra, extras_named

if TYPE_CHECKING:
    from rich.console import Console

    from mrcfa.benchmarks.result import BenchOptions, Result

MakeBundle = Callable[[Path, str | None, bool], None]
"""(path, size, with engines) -> the paper's bundle there; the command line's context has it."""

BY_SIZE = ("tensorrt", "onnxruntime")
"""What --sizes measures: the first that runs."""


class PeerChoice(str, Enum):
    SEGFORMER = "segformer"
    NONE = "none"


def bench(
    context: typer.Context,
    bundle: Annotated[
        Path | None,
        typer.Argument(help="A bundle's directory. Default: bundles/vspw-b1, made if missing."),
    ] = None,
    backends: Annotated[str, typer.Option(help=f"From {named(CHOICES)}.")] = ",".join(USUAL),
    frames: Annotated[int, typer.Option(help="How many frames to measure.")] = 30,
    warmup: Annotated[int, typer.Option(help="How many frames come before them.")] = 10,
    drift: Annotated[
        int, typer.Option(help="Compare errors up to this frame: 100, 1000, or 0 for not at all.")
    ] = 100,
    video: Annotated[
        Path | None, typer.Option(help="Default: a street of the sample world.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A dataset, to compare the metrics of all precisions.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which videos of it.")] = "val",
    limit: Annotated[int | None, typer.Option(min=1, help="Only its first N videos.")] = None,
    threads: Annotated[int, typer.Option(help="Of each backend. Default: all cores.")] = 0,
    size: Annotated[
        str | None, typer.Option(help="HxW of the bundle to make where none is named.")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(help="Sizes such as 480x864,1088x1920: how time and memory grow with them."),
    ] = None,
    peer: Annotated[
        PeerChoice, typer.Option(help="What else to compare with.")
    ] = PeerChoice.SEGFORMER,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write JSON lines: run, frames and rows.")
    ] = None,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report.html"),
) -> None:
    """Measure parity and speed of every backend; exit code 1 if one does not compute the model."""

    from mrcfa.benchmarks.bench import bench as measure
    from mrcfa.benchmarks.result import BenchOptions
    from mrcfa.benchmarks.table import (
        boundary,
        idle_gpu,
        notes,
        precision_table,
        rich_table,
    )
    from mrcfa.console.notices import tell
    from mrcfa.machine.files import check_writable, replaced

    options = BenchOptions(
        backends=parse_names(backends),
        frames=frames,
        warmup=warmup,
        drift=drift,
        video=video,
        threads=threads,
        peer=peer is PeerChoice.SEGFORMER,
        data=data,
        split=split,
        limit=limit,
    )
    if sizes is not None:
        if bundle is not None or size is not None:
            raise Mismatch("--sizes makes its own bundles; leave BUNDLE and --size out")
        _bench_sizes(context.obj, parse_names(sizes), replace(options, backends=BY_SIZE), json_file)
        return
    texts = _texts(json_file, report)
    for place in texts:
        check_writable(place)
    path = _benched(context.obj, bundle, size)
    with filling() as show:
        result = measure(path, options, show)
    for place, text in texts.items():  # first: whoever quits a pager keeps the files
        with replaced(place) as part:
            part.write_text(text(result), encoding="utf-8")
    for sentence in idle_gpu(result):
        tell(sentence)
    console = _console()
    console.print(rich_table(result))
    console.print(precision_table(result))
    wrote = [f"wrote {place}" for place in texts]
    typer.echo("\n".join([*notes(result), boundary(result), result.headline, *wrote]))
    raise typer.Exit(0 if result.passed else 1)


def _bench_sizes(
    make: MakeBundle, sizes: list[str], options: "BenchOptions", json_file: Path | None
) -> None:
    from mrcfa.benchmarks.bench import checked
    from mrcfa.benchmarks.sizes import measure_size, sizes_table
    from mrcfa.machine.files import check_writable, replaced
    from mrcfa.model.config import check_size

    if len(sizes) < 2:
        raise InvalidValue("--sizes needs two or more to compare, such as 480x864,1088x1920")
    for size in sizes:
        check_size(parse_size(size))
    if json_file is not None:
        check_writable(json_file)
    paths = [_benched(make, None, size, engines=True) for size in sizes]
    options = checked(options, Bundle.open(paths[0]))
    with filling() as show:
        rows = [measure_size(path, options, show) for path in paths]
    if json_file is not None:
        with replaced(json_file) as part:
            lines = (json.dumps(row.to_json()) for row in rows)
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _console().print(sizes_table(rows))
    if engine := next((row.engine for row in rows if row.engine), None):
        typer.echo(f"engine: {engine}, as TensorRT lists its kernels; it was built, not run")


def _console() -> "Console":
    """As wide as the terminal, or as the widest table."""
    from rich.console import Console

    from mrcfa.benchmarks.table import WIDTH

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


def _texts(json_file: Path | None, report: Path) -> "dict[Path, Callable[[Result], str]]":
    """What is written of a result, by place."""
    from mrcfa.benchmarks.result import Result

    if json_file == report:
        raise Mismatch(f"--json and --report both name {report}; give them different names")
    texts: dict[Path, Callable[[Result], str]] = {}
    if json_file is not None:
        texts[json_file] = Result.to_json_lines
    try:
        with extras_named():
            from mrcfa.benchmarks.report import report as page
        texts[report] = page
    except MissingExtra as error:
        typer.echo(f"mrcfa: no report will be written: {error}", err=True)
    return texts


def _benched(
    make: MakeBundle, bundle: Path | None, size: str | None, engines: bool = False
) -> Path:
    """The bundle to measure; without a name the paper's, made here if it is missing."""
    if bundle is not None:
        if size is not None:
            raise Mismatch(f"--size is for bundles that bench makes; {bundle} has a size already")
        return bundle
    path = Path("bundles") / ("vspw-b1" if size is None else f"vspw-b1-{size}")
    if not path.exists():
        make(path, size, engines)
    return path


def evaluate(
    bundle: Annotated[Path, typer.Argument(help="A bundle, or a run of mrcfa train.")],
    dataset: Annotated[
        Path, typer.Argument(help="VSPW, Cityscapes, or your own with a labels.json.")
    ],
    split: Annotated[str, typer.Option(help="Which videos.")] = "val",
    backend: Annotated[str, typer.Option(help=f"One of {named(records.CHOICES)}.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N videos.")] = None,
    against: Annotated[Path | None, typer.Option(help="A bundle or run to compare with.")] = None,
    single: Annotated[
        bool, typer.Option("--single", help="Every frame alone, by the single-frame head.")
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="Of the bundle's graphs, such as fp16. Default: backend's.")
    ] = None,
    against_backend: Annotated[
        str | None, typer.Option(help="The backend of --against. Default: --backend.")
    ] = None,
    against_precision: Annotated[str | None, typer.Option(help="Of --against.")] = None,
    vspw_script: Annotated[
        bool, typer.Option("--vspw-script", help="mVC as VSPW's public script computes it.")
    ] = False,
    cold_start: Annotated[
        ColdStart, typer.Option(help="single: answer frames 0-2 with the single-frame head.")
    ] = ColdStart.STREAM,
    as_json: AsJson = False,
) -> None:
    """Measure mIoU, weighted IoU, pixel accuracy, mVC8 and mVC16; goes on where it stopped."""
    from mrcfa.benchmarks import evaluate as evaluation
    from mrcfa.benchmarks.candidate import Candidate

    check_order("eval", bundle, [dataset])
    options = evaluation.EvalOptions(dataset, split, limit, vspw_script)
    candidates = [Candidate(bundle, backend, cold_start, single, precision)]
    if against is not None:
        other = against_backend or backend
        candidates.append(Candidate(against, other, cold_start, precision=against_precision))
    try:
        done = []
        for candidate in candidates:
            with counting() as advance:
                done.append(evaluation.evaluate(candidate, options, advance))
    except KeyboardInterrupt:
        typer.echo("mrcfa: stopped; the same command goes on after the last whole video", err=True)
        raise typer.Exit(130) from None
    typer.echo(json.dumps(evaluation.report(done), indent=2) if as_json else evaluation.table(done))
    for each in done:
        evaluation.forget(each)
