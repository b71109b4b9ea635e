"""The verbs about a machine and a bundle: `mrcfa doctor` and `mrcfa inspect`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mrcfa.arguments import AsJson


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


def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a bundle without loading it."""
    from mrcfa.bundle import Bundle
    from mrcfa.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))
