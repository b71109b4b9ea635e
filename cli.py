"""The `mrcfa` command: assembles the verbs that each room declares in its `commands.py`."""

import codecs
import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import mrcfa
from mrcfa.benchmarks.commands import bench_with, evaluate
from mrcfa.bundle.commands import inspect
from mrcfa.console.notices import warn
from mrcfa.engines.commands import build
from mrcfa.errors import MrcfaError
from mrcfa.export.commands import export, quantize
from mrcfa.machine.extras import extras_named
from mrcfa.machine.files import CutShort
from mrcfa.machine.interrupts import raised
from mrcfa.selftest.commands import doctor, selftest
from mrcfa.serving.commands import triton
from mrcfa.training.commands import train
from mrcfa.video.commands import run, sample
from mrcfa.web.commands import web

app = typer.Typer(
    help="MRCFA video semantic segmentation: from PyTorch to ONNX and TensorRT.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; every error becomes one sentence and exit code 2."""
    _print_anywhere()
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for processes that libraries start
    try:
        with raised(), extras_named():
            code = app(standalone_mode=False)
    except CutShort as error:
        _end(error, code=1)
    except MrcfaError as error:
        _end(error)
    except typer.TyperException as error:
        _end(error.format_message().replace("Value error, ", ""))  # a prefix that pydantic adds
    except OSError as error:  # a name that is too long, a disk that fails
        _end(error)
    except MemoryError:
        _end("out of memory; close other programs, or use smaller frames or a smaller model")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code or 0)


def _end(sentence: object, code: int = 2) -> NoReturn:
    warn(sentence)
    sys.exit(code)


def _print_anywhere() -> None:
    """Print a substitute for every character that the terminal lacks, such as ✓ in Latin-1."""
    instead = {"✓": "+", "✗": "x"}

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        lacking = error.object[error.start : error.end]
        return "".join(instead.get(character, "?") for character in lacking), error.end

    codecs.register_error("mrcfa", replace)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="mrcfa")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"mrcfa {mrcfa.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _make_bundle(path: Path, size: str | None, engines: bool) -> None:
    """Write the bundle that `bench` measures by default, with engines if that is possible."""
    export(size=size, out=path)
    if engines and find_spec("tensorrt_rtx"):
        build(path)


bench = bench_with(_make_bundle)
_PREPARE, _USE = (train, export, quantize, build), (bench, run, triton, web)
for verb in (*_PREPARE, *_USE, inspect, selftest, doctor, sample):
    app.command()(verb)
app.command("eval")(evaluate)

if __name__ == "__main__":
    main()
