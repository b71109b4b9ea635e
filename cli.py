"""The `mrcfa` command: one short function per verb; heavy imports happen inside them."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

import mrcfa
from mrcfa.errors import MrcfaError
from mrcfa.extras import MissingExtra, load

app = typer.Typer(
    help="MRCFA video semantic segmentation: from PyTorch to ONNX and TensorRT.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Run the command line; an `MrcfaError` becomes one sentence and exit code 2."""
    try:
        app()
    except MrcfaError as error:
        typer.echo(f"mrcfa: {error}", err=True)
        sys.exit(2)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"mrcfa {mrcfa.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from mrcfa.machine import findings

    found = findings()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
        return
    for finding in found:
        if finding.found is None:
            text = f"missing; for {finding.enables}: {finding.remedy}"
        else:
            text = f"{finding.found}: {finding.enables}"
        typer.echo(f"{'-' if finding.found is None else '✓'} {finding.name:13} {text}")


def _size(text: str, example: str = "480x864") -> tuple[int, int]:
    """`480x864` -> (480, 864): height first, as everywhere in mrcfa but on pipes, as in FFmpeg."""
    first, _, second = text.partition("x")
    if not (first.isdigit() and second.isdigit() and int(first) and int(second)):
        raise MrcfaError(f"{text!r} is no size; write it like {example}")
    return int(first), int(second)


@app.command()
def export(
    backbone: Annotated[str, typer.Option(help="MiT backbone: b0 … b5.")] = "b1",
    dataset: Annotated[str, typer.Option(help="Preset: vspw or cityscapes.")] = "vspw",
    weights: Annotated[
        Path | None, typer.Option(help="The authors' checkpoint, or safetensors.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Network input, HxW, multiples of 32.")] = None,
    frame: Annotated[str | None, typer.Option(help="Camera frame, HxW; default: --size.")] = None,
    output: Annotated[str, typer.Option(help="What the decoder answers: mask or logits.")] = "mask",
    precision: Annotated[str, typer.Option(help="fp32, fp16 or both.")] = "fp32,fp16",
    references: Annotated[str | None, typer.Option(help="Offsets, such as 9,6,3.")] = None,
    keep: Annotated[float | None, typer.Option(help="Share of tokens that STM keeps.")] = None,
    opset: Annotated[int, typer.Option(help="ONNX opset, 17 to 23.")] = 18,
    inline_functions: Annotated[
        bool, typer.Option("--inline-functions", help="For parsers that know no functions.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random weights used without --weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Default: bundles/DATASET-BACKBONE.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
) -> None:
    """Write encoder and decoder as ONNX, checked against the model, with a manifest."""
    changes: dict[str, object] = {}
    if size is not None:
        changes["size"] = _size(size)
    if references is not None:
        changes["references"] = _offsets(references)
    if keep is not None:
        changes["keep"] = keep
    config = mrcfa.preset(dataset, backbone, **changes)
    path = out or Path("bundles") / f"{dataset}-{backbone}"
    if weights is None:
        typer.echo(
            f"mrcfa: no --weights given: the model is random (seed {seed}) and its masks are "
            "meaningless; speed and parity are real",
            err=True,
        )
    exporter = load("export.exporter")
    options = exporter.Options(
        frame=_size(frame) if frame else config.size,
        output=output,
        precisions=[name.strip() for name in precision.split(",") if name.strip()],
        opset=opset,
        inline_functions=inline_functions,
    )
    with working() as say:
        bundle = exporter.export_bundle(config, path, weights, seed, options, force, say)
    for name, checks in bundle.manifest.parity.items():
        for check in checks:
            typer.echo(
                f"{name} {check['name']}: {check['value']:.3g} "
                f"({check['operator']} {check['threshold']:.3g})"
            )
    typer.echo(f"wrote {path}")


def _offsets(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise MrcfaError(f"{text!r} are no offsets; write them like 9,6,3") from None


@app.command()
def build(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    flavour: Annotated[
        str, typer.Option(help="auto, tensorrt (this machine's GPU) or rtx (no GPU needed).")
    ] = "auto",
    sm: Annotated[
        list[str] | None,
        typer.Option(help="Compute capability, such as 75; repeat it for several in one engine."),
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help='Or a GPU by its name, such as "quadro rtx 6000".')
    ] = None,
    precision: Annotated[str, typer.Option(help="fp16 or fp32.")] = "fp16",
    plugin: Annotated[
        str, typer.Option(help="SelectTokens as a plugin: auto (where it must), never or always.")
    ] = "auto",
    plugin_library: Annotated[
        Path | None,
        typer.Option(help="libmrcfa_plugin.so. Default: $MRCFA_PLUGIN_LIBRARY."),
    ] = None,
    timing_cache: Annotated[
        Path | None, typer.Option(help="Kept between builds to make them faster (tensorrt).")
    ] = None,
    workspace: Annotated[
        int | None, typer.Option(metavar="MB", help="Most scratch memory a kernel may take.")
    ] = None,
    optimization_level: Annotated[
        int | None, typer.Option(help="0 (builds fast) to 5 (runs fast).")
    ] = None,
    version_compatible: Annotated[
        bool,
        typer.Option("--version-compatible", help="For other minor versions too (tensorrt)."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print all TensorRT says.")] = False,
) -> None:
    """Compile a bundle's graphs to TensorRT engines."""
    from engines.builder import Options, build_engines
    from engines.gpus import compute_capability, parse_sm
    from engines.target import choose_target

    wanted = [*map(parse_sm, sm or ()), *map(compute_capability, gpu or ())]
    options = Options(
        precision=precision,
        plugin=plugin,
        plugin_library=plugin_library,
        timing_cache=timing_cache,
        workspace_mb=workspace,
        optimization_level=optimization_level,
        version_compatible=version_compatible,
        verbose=verbose,
    )
    with filling() as show:
        built = build_engines(bundle, choose_target(flavour, wanted), options, show)
    for part, plan in built.plans.items():
        typer.echo(
            f"{part}: {len(plan.content) / 1e6:.1f} MB, {len(plan.layers)} layers, "
            f"{plan.seconds:.1f} s"
        )
    typer.echo(f"added the engine {built.engine.name} to {bundle}")


@app.command()
def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a bundle without loading it."""
    from mrcfa.bundle import Bundle
    from mrcfa.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))


@app.command()
def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A video, an image, a folder or glob of images, a camera's index, a URL, or -.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="name.mp4, name.npz, a folder of PNGs or -. Default: INPUT.mrcfa.mp4.",
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            "--as", help="overlay, mask, color or side-by-side. Default: overlay in MP4, else mask."
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Opacity of the overlay.")] = 0.5,
    classes: Annotated[str, typer.Option(help="Show only these, such as person,car.")] = "",
    backend: Annotated[str, typer.Option(help="auto, tensorrt, onnxruntime or eager.")] = "auto",
    start: Annotated[float, typer.Option(help="Seconds into INPUT to start at.")] = 0,
    end: Annotated[float, typer.Option(help="Seconds into INPUT to stop at.")] = math.inf,
    stride: Annotated[int, typer.Option(help="Take every N-th frame.")] = 1,
    fps: Annotated[float, typer.Option(min=0.01, help="Of images and raw frames.")] = 25,
    raw: Annotated[str | None, typer.Option(help="Size of RGB frames on -, WxH.")] = None,
    reset_on_cut: Annotated[
        bool, typer.Option("--reset-on-cut", help="Forget earlier frames at a scene cut.")
    ] = False,
) -> None:
    """Segment a video, images, a camera or a pipe."""
    from mrcfa.overlay import Renderer, style_for
    from mrcfa.segment import segment
    from mrcfa.sinks import open_sink, place_for
    from mrcfa.sources import Span, open_source

    frames = open_source(
        source, Span(start, end, stride), Fraction(str(fps)), _size(raw, "864x480") if raw else None
    )
    place = place_for(source, out)
    with mrcfa.Stream(bundle, backend) as stream:
        only = [name for name in classes.split(",") if name.strip()]
        render = Renderer(style_for(place, style), stream.classes, stream.palette, alpha, only)
        sink = open_sink(place, stream.classes, stream.palette, frames.rate)
        with sink as write, counting(frames.total) as advance:
            done = segment(frames, stream, render, write, reset_on_cut, advance)
        speed = f"{done.frames / done.seconds:.1f} frames/s with {stream.backend}"
    typer.echo(f"wrote {place}: {done.frames} frames, {speed}", err=True)
    if done.interrupted:
        typer.echo("mrcfa: stopped by Ctrl-C; what was written is complete up to there", err=True)
        raise typer.Exit(130)
    if frames.complaint:
        typer.echo(f"mrcfa: {frames.complaint}", err=True)
        raise typer.Exit(1)


@app.command("eval")
def evaluate(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    dataset: Annotated[Path, typer.Argument(help="VSPW's or Cityscapes' directory.")],
    split: Annotated[str, typer.Option(help="Which videos.")] = "val",
    backend: Annotated[str, typer.Option(help="auto, tensorrt, onnxruntime or eager.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N videos.")] = None,
    against: Annotated[Path | None, typer.Option(help="A bundle to compare with.")] = None,
    against_backend: Annotated[
        str | None, typer.Option(help="The backend of --against. Default: --backend.")
    ] = None,
    vspw_script: Annotated[
        bool, typer.Option("--vspw-script", help="mVC as VSPW's public script computes it.")
    ] = False,
    cold_start: Annotated[
        str, typer.Option(help="single: answer frames 0-2 with the single-frame head.")
    ] = "stream",
    as_json: AsJson = False,
) -> None:
    """Measure mIoU, weighted IoU, pixel accuracy, mVC8 and mVC16; goes on where it stopped."""
    evaluation = load("benchmarks.evaluate")
    request = evaluation.Request(dataset, split, limit, vspw_script, cold_start)
    candidates = [(bundle, backend)]
    if against is not None:
        candidates.append((against, against_backend or backend))
    try:
        done = []
        for path, name in candidates:
            with counting() as advance:
                done.append(evaluation.evaluate(path, name, request, advance))
    except KeyboardInterrupt:
        typer.echo("mrcfa: stopped; the same command goes on after the last whole video", err=True)
        raise typer.Exit(130) from None
    typer.echo(json.dumps(evaluation.report(done), indent=2) if as_json else evaluation.table(done))
    for each in done:
        evaluation.forget(each, request)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="A new directory.")],
    videos: Annotated[int, typer.Option(min=1, help="How many videos.")] = 3,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each video.")] = 24,
    size: Annotated[str, typer.Option(help="Of the frames, HxW.")] = "480x864",
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other scenes.")] = 0,
) -> None:
    """Make a small dataset in VSPW's layout, and a video, to try everything without a download."""
    load("benchmarks.sample").write_sample(folder, videos, frames, _size(size), seed)
    typer.echo(f"wrote {folder}: {videos} videos with masks, and {folder / 'street.mp4'}")


@app.command()
def bench(
    bundle: Annotated[
        Path | None,
        typer.Argument(help="A bundle's directory. Default: bundles/vspw-b1, made if missing."),
    ] = None,
    backends: Annotated[
        str, typer.Option(help="From eager-clip, eager, onnxruntime, onnxruntime:cpu, tensorrt, ….")
    ] = "eager-clip,eager,onnxruntime,tensorrt",
    frames: Annotated[int, typer.Option(help="How many frames to measure.")] = 30,
    warmup: Annotated[int, typer.Option(help="How many frames come before them.")] = 10,
    drift: Annotated[
        int, typer.Option(help="Compare errors up to this frame: 100, 1000, or 0 for not at all.")
    ] = 100,
    video: Annotated[Path | None, typer.Option(help="Default: frames from a formula.")] = None,
    threads: Annotated[int, typer.Option(help="Of each backend. Default: all cores.")] = 0,
    size: Annotated[
        str | None, typer.Option(help="HxW of the bundle to make where none is named.")
    ] = None,
    peer: Annotated[str, typer.Option(help="What else to compare with: segformer or none.")] = (
        "segformer"
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write JSON lines: run, frames and rows.")
    ] = None,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report.html"),
) -> None:
    """Measure parity and speed of every backend; exit code 1 if one does not compute the model."""
    from rich.console import Console

    from benchmarks.bench import bench as measure
    from benchmarks.result import Request, Result
    from benchmarks.table import WIDTH, boundary, notes, rich_table
    from mrcfa.sinks import check_writable, replaced

    if peer not in ("segformer", "none"):
        raise MrcfaError(f"unknown peer {peer!r}; choose segformer or none")
    request = Request(
        backends=[name.strip() for name in backends.split(",") if name.strip()],
        frames=frames,
        warmup=warmup,
        drift=drift,
        video=video,
        threads=threads,
        peer=peer == "segformer",
    )
    if json_file == report:
        raise MrcfaError(f"--json and --report both name {report}; give them different names")
    texts: dict[Path, Callable[[Result], str]] = {}
    if json_file is not None:
        texts[json_file] = Result.to_json_lines
    try:
        texts[report] = load("benchmarks.report").report
    except MissingExtra as error:
        typer.echo(f"mrcfa: no report will be written: {error}", err=True)
    for place in texts:
        check_writable(place)
    path = _benched(bundle, size)
    with filling() as show:
        result = measure(path, request, show)
    for place, text in texts.items():  # first: whoever quits a pager keeps the files
        with replaced(place) as part:
            part.write_text(text(result), encoding="utf-8")
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(rich_table(result))
    wrote = [f"wrote {place}" for place in texts]
    typer.echo("\n".join([*notes(result), boundary(result), result.headline, *wrote]))
    raise typer.Exit(0 if result.passed else 1)


def _benched(bundle: Path | None, size: str | None) -> Path:
    """The bundle to measure; without a name the paper's, made here if it is missing."""
    if bundle is not None:
        if size is not None:
            raise MrcfaError(f"--size is for bundles that bench makes; {bundle} has a size already")
        return bundle
    path = Path("bundles") / ("vspw-b1" if size is None else f"vspw-b1-{size}")
    if not path.exists():
        export(size=size, out=path)
    return path


@contextmanager
def counting(total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar with frames per second and the time left on a terminal, nothing elsewhere.

    Yields what to call after each frame; `total=…` tells it later how many there are.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed:.0f} frames"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, speed="")

        def advance(total: int | None = None) -> None:
            speed = bar.tasks[0].speed
            text = "" if speed is None else f"{speed:.1f} frames/s"
            bar.update(task, advance=0 if total else 1, total=total, speed=text)

        yield advance


@contextmanager
def filling() -> Iterator[Callable[[str, float], None]]:
    """A bar for each thing that is made, by its name and the share that is done, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=1.0)
            bar.update(tasks[name], completed=share)

        yield show


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step on a terminal, silence elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield status.update


if __name__ == "__main__":
    main()
