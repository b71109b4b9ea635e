"""`mrcfa bench` and `mrcfa eval`."""

import json
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.backends import records
from mrcfa.backends.records import ColdStart, check_order
from mrcfa.benchmarks.contenders import CHOICES, SERVERS, USUAL
from mrcfa.bundle import Bundle
from mrcfa.console.arguments import ADVANCED, AsJson, parse_names, parse_size
from mrcfa.console.progress import counting, filling
from mrcfa.errors import InvalidValue, Mismatch, named
from mrcfa.machine.extras import MissingExtra, extras_named

if TYPE_CHECKING:
    from rich.console import Console

    from mrcfa.benchmarks.result import BenchOptions, Result

MakeBundle = Callable[[Path, str | None, bool], None]
"""Function (path, size, with engines) that writes the paper's bundle."""

BY_SIZE = ("tensorrt", "onnxruntime")
"""Backends that --sizes tries in this order; the first that runs is measured."""


class PeerChoice(str, Enum):
    SEGFORMER = "segformer"
    NONE = "none"


def bench_with(make_bundle: MakeBundle) -> Callable[..., None]:
    """The verb `bench`. It calls `make_bundle` if the user names no bundle.

    The command line passes the function in, because benchmarks import no exporter.
    """

    def bench(
        bundle: Annotated[
            Path | None,
            typer.Argument(
                help="Directory of the bundle. Default: bundles/vspw-b1, which is made if missing."
            ),
        ] = None,
        backends: Annotated[
            str,
            typer.Option(
                metavar="LIST",
                help="Backends to measure, separated by commas. Choices: "
                f"{named((*CHOICES, *SERVERS), most=20)}.",
            ),
        ] = ",".join(USUAL),
        frames: Annotated[int, typer.Option(help="Number of frames to measure.")] = 30,
        video: Annotated[
            Path | None,
            typer.Option(help="Video file to measure on. Default: a street of the sample world."),
        ] = None,
        data: Annotated[
            Path | None,
            typer.Option(help="Dataset on which to compare mIoU and mVC of all precisions."),
        ] = None,
        split: Annotated[str, typer.Option(help="Split of --data to evaluate.")] = "val",
        limit: Annotated[
            int | None,
            typer.Option(min=1, help="Number of videos of --data to evaluate. Default: all."),
        ] = None,
        threads: Annotated[
            int, typer.Option(help="CPU threads of each backend; 0 means all cores.")
        ] = 0,
        json_file: Annotated[
            Path | None,
            typer.Option(
                "--json",
                help="File for all results as JSON lines. Default: no such file is written.",
            ),
        ] = None,
        report: Annotated[Path, typer.Option(help="File for the HTML report.")] = Path(
            "report.html"
        ),
        warmup: Annotated[
            int,
            typer.Option(
                help="Number of frames before the measured ones.", rich_help_panel=ADVANCED
            ),
        ] = 10,
        drift: Annotated[
            int,
            typer.Option(
                help="Last frame at which to check that errors do not grow: 100 or 1000; 0 "
                "switches the check off.",
                rich_help_panel=ADVANCED,
            ),
        ] = 100,
        size: Annotated[
            str | None,
            typer.Option(
                metavar="HxW",
                help="Size of the network's input in the bundle that bench makes if BUNDLE is not "
                "given. Default: 480x864.",
                rich_help_panel=ADVANCED,
            ),
        ] = None,
        sizes: Annotated[
            str | None,
            typer.Option(
                metavar="HxW,HxW",
                help="Measure how time and memory grow over these sizes, such as "
                "480x864,1088x1920, instead of comparing backends.",
                rich_help_panel=ADVANCED,
            ),
        ] = None,
        peer: Annotated[
            PeerChoice,
            typer.Option(
                help="Other model to compare speed with: single-frame SegFormer, or none.",
                rich_help_panel=ADVANCED,
            ),
        ] = PeerChoice.SEGFORMER,
    ) -> None:
        """Measure parity and speed of every backend; exit code 1 if a backend fails its checks."""

        from mrcfa.benchmarks.bench import bench as measure
        from mrcfa.benchmarks.result import BenchOptions
        from mrcfa.benchmarks.table import (
            boundary,
            idle_gpu,
            notes,
            precision_table,
            rich_table,
        )
        from mrcfa.console.notices import warn
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
            _bench_sizes(
                make_bundle, parse_names(sizes), replace(options, backends=BY_SIZE), json_file
            )
            return
        texts = _texts(json_file, report)
        for place in texts:
            check_writable(place)
        path = _bundle_path(make_bundle, bundle, size)
        with filling() as show:
            result = measure(path, options, show)
        for (
            place,
            text,
        ) in texts.items():  # before printing: quitting a pager must not lose the files
            with replaced(place) as part:
                part.write_text(text(result), encoding="utf-8")
        for sentence in idle_gpu(result):
            warn(sentence)
        console = _console()
        console.print(rich_table(result))
        console.print(precision_table(result))
        wrote = [f"wrote {place}" for place in texts]
        typer.echo("\n".join([*notes(result), boundary(result), result.headline, *wrote]))
        raise typer.Exit(0 if result.passed else 1)

    return bench


def _bench_sizes(
    make: MakeBundle, sizes: list[str], options: "BenchOptions", json_file: Path | None
) -> None:
    from mrcfa.benchmarks.bench import checked
    from mrcfa.benchmarks.sizes import measure_size, sizes_table
    from mrcfa.machine.files import check_writable, replaced
    from mrcfa.model.config import check_size

    if len(sizes) < 2:
        raise InvalidValue("--sizes needs two or more sizes, such as 480x864,1088x1920")
    for size in sizes:
        check_size(parse_size(size))
    if json_file is not None:
        check_writable(json_file)
    paths = [_bundle_path(make, None, size, engines=True) for size in sizes]
    options = checked(options, Bundle.open(paths[0]))
    with filling() as show:
        rows = [measure_size(path, options, show) for path in paths]
    if json_file is not None:
        with replaced(json_file) as part:
            lines = (json.dumps(row.to_json()) for row in rows)
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _console().print(sizes_table(rows))
    if engine := next((row.engine for row in rows if row.engine), None):
        typer.echo(
            f"engine: {engine}, figures from TensorRT's list of its kernels; it was built, not run"
        )


def _console() -> "Console":
    """A console as wide as the terminal, or `WIDTH` wide if the output is no terminal."""
    from rich.console import Console

    from mrcfa.benchmarks.table import WIDTH

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


def _texts(json_file: Path | None, report: Path) -> "dict[Path, Callable[[Result], str]]":
    """Output file -> function that renders the result for it."""
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


def _bundle_path(
    make: MakeBundle, bundle: Path | None, size: str | None, engines: bool = False
) -> Path:
    """Path of the bundle to measure: BUNDLE, or the paper's, which is made here if missing."""
    if bundle is not None:
        if size is not None:
            raise Mismatch(
                f"--size is for bundles that bench makes, and {bundle} has a size already; leave "
                "one of them out"
            )
        return bundle
    path = Path("bundles") / ("vspw-b1" if size is None else f"vspw-b1-{size}")
    if not path.exists():
        make(path, size, engines)
    return path


def evaluate(
    bundle: Annotated[
        Path, typer.Argument(help="Directory of a bundle, or of a run of mrcfa train.")
    ],
    dataset: Annotated[
        Path,
        typer.Argument(help="Folder of VSPW, of Cityscapes, or of your own data with labels.json."),
    ],
    split: Annotated[str, typer.Option(help="Split of the dataset to evaluate.")] = "val",
    backend: Annotated[
        str,
        typer.Option(help=f"Backend that runs the bundle: {named(records.CHOICES)}."),
    ] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of the bundle's graphs, such as fp16. Default: fp32 on CPUs, fp16 on "
            "GPUs."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of videos to evaluate. Default: all.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Second bundle or run, to compare with the first.")
    ] = None,
    as_json: AsJson = False,
    against_backend: Annotated[
        str | None,
        typer.Option(
            help="Backend that runs --against. Default: that of --backend.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    against_precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of the graphs of --against. Default: fp32 on CPUs, fp16 on GPUs.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    single: Annotated[
        bool,
        typer.Option(
            "--single",
            help="Segment every frame alone, with the single-frame head.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    cold_start: Annotated[
        ColdStart,
        typer.Option(
            help="How to segment frames 0 to 2: stream uses the frames there are as references, "
            "single uses the single-frame head, as the authors' code does.",
            rich_help_panel=ADVANCED,
        ),
    ] = ColdStart.STREAM,
    vspw_script: Annotated[
        bool,
        typer.Option(
            "--vspw-script",
            help="Compute mVC as VSPW's public script does: ignored pixels count, windows are "
            "pooled.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
) -> None:
    """Measure mIoU, weighted IoU, pixel accuracy, mVC8 and mVC16; resumes an interrupted run."""
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
        typer.echo(
            "mrcfa: stopped; the same command resumes after the last finished video", err=True
        )
        raise typer.Exit(130) from None
    typer.echo(json.dumps(evaluation.report(done), indent=2) if as_json else evaluation.table(done))
    for finished in done:
        evaluation.forget(finished)
