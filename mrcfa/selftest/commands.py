"""`mrcfa selftest` and `mrcfa doctor`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcfa.console.arguments import AsJson

if TYPE_CHECKING:
    from mrcfa.selftest.findings import Finding


def selftest(
    bundle: Annotated[Path, typer.Argument(help="Directory of the bundle.")],
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="File for all results as JSON, for a bug report. Default: not written."
        ),
    ] = None,
    cpp_tool: Annotated[
        Path | None,
        typer.Option(
            help="The C++ program mrcfa-segment. Default: the one on PATH, or in build/cpp of this "
            "clone."
        ),
    ] = None,
) -> None:
    """Check every way to run a bundle on this machine; exit code 1 if a check fails."""
    from mrcfa.bundle import Bundle
    from mrcfa.machine.files import check_writable, write_whole
    from mrcfa.selftest.selftest import passed, report, surroundings, verdict
    from mrcfa.selftest.selftest import selftest as lines_of

    if json_file is not None:
        check_writable(json_file)
    opened, lines = Bundle.open(bundle), []
    around = {} if json_file is None else surroundings(opened)
    for line in lines_of(opened, cpp_tool):
        lines.append(line)
        typer.echo(str(line))
        if json_file is not None:  # after each check: one that hangs must not lose the others
            write_whole(json_file, report(around, lines, complete=False).encode())
    typer.echo(verdict(lines))
    if json_file is not None:
        write_whole(json_file, report(around, lines).encode())
        typer.echo(f"wrote {json_file}")
    raise typer.Exit(0 if passed(lines) else 1)


def doctor(as_json: AsJson = False) -> None:
    """Check what this machine can run, and print what to install or repair for the rest."""
    from mrcfa.selftest.findings import findings
    from mrcfa.selftest.trials import tried

    found = tried(findings())
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
        return
    for finding in found:
        typer.echo(_text(finding))


def _text(finding: "Finding") -> str:
    if finding.found is None:
        sign, text = "-", f"missing (needed for {finding.enables}); {finding.remedy}"
    elif finding.works is False:
        sign, text = "✗", f"{finding.found}, but {finding.said}; {finding.remedy}"
    else:
        tried = f" ({finding.said})" if finding.said else ""
        sign, text = "✓", f"{finding.found}: {finding.enables}{tried}"
    return f"{sign} {finding.name:13} {text}"
