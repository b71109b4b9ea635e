"""The verbs about a machine and a bundle: `mrcfa doctor` and `mrcfa inspect`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.arguments import AsJson

if TYPE_CHECKING:
    from mrcfa.machine import Finding


def doctor(as_json: AsJson = False) -> None:
    """Try what this machine can do, and say what to install or mend for the rest."""
    from mrcfa.machine import findings
    from mrcfa.trials import tried

    found = tried(findings())
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
        return
    for finding in found:
        typer.echo(_told(finding))


def _told(finding: "Finding") -> str:
    if finding.found is None:
        sign, text = "-", f"missing; for {finding.enables}: {finding.remedy}"
    elif finding.works is False:
        sign, text = "✗", f"{finding.found}, but {finding.said}; {finding.remedy}"
    else:
        tried = f" ({finding.said})" if finding.said else ""
        sign, text = "✓", f"{finding.found}: {finding.enables}{tried}"
    return f"{sign} {finding.name:13} {text}"


def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a bundle without loading it."""
    from mrcfa.bundle import Bundle
    from mrcfa.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))
