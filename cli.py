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
from mrcfa.benchmarks.commands import bench, evaluate
from mrcfa.bundle.commands import inspect
from mrcfa.console.notices import tell
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

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Click's, which typer has under different names in its versions."""

app = typer.Typer(
    help="MRCFA video semantic segmentation: from PyTorch to ONNX and TensorRT.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for verb in (train, export, quantize, build, bench, run, triton, inspect, selftest, doctor, sample):
    app.command()(verb)
app.command("eval")(evaluate)


def main() -> None:
    """Run the command line; whatever is wrong becomes one sentence and exit code 2."""
    _print_anywhere()
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for processes that libraries start
    try:
        with raised(), extras_named():
            code = app(standalone_mode=False)
    except CutShort as error:
        _end(error, code=1)
    except MrcfaError as error:
        _end(error)
    except UsageError as error:
        # Click's own method, which Exception lacks; recent typers put pydantic's words in front.
        _end(error.format_message().replace("Value error, ", ""))  # type: ignore[attr-defined]
    except OSError as error:  # a name that is too long, a disk that fails
        _end(error)
    except MemoryError:
        _end("memory ran out; close other programs, or use smaller frames or a smaller model")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code or 0)


def _end(sentence: object, code: int = 2) -> NoReturn:
    tell(sentence)
    sys.exit(code)


def _print_anywhere() -> None:
    """A terminal that lacks a character, as Latin-1 lacks ✓, shows another one."""
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
    context.obj = _make_bundle
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _make_bundle(path: Path, size: str | None, engines: bool) -> None:
    """For `bench`, whose room knows neither the exporter's nor the builder's."""
    export(size=size, out=path)
    if engines and find_spec("tensorrt_rtx"):
        build(path)


if __name__ == "__main__":
    main()
