"""The `mrcfa` command: one short function per verb; heavy imports happen inside them."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

import mrcfa
from mrcfa.errors import MrcfaError

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


if __name__ == "__main__":
    main()
