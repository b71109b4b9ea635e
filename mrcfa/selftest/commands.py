"""`mrcfa selftest`."""

from pathlib import Path
from typing import Annotated

import typer


def selftest(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all of it for a bug report.")
    ] = None,
    cpp_tool: Annotated[
        Path | None,
        typer.Option(help="mrcfa-segment. Default: on the path, or in this clone."),
    ] = None,
) -> None:
    """Check every way to run a bundle on this machine; exit code 1 if one does not work."""
    from mrcfa.bundle import Bundle
    from mrcfa.files import check_writable, write_whole
    from mrcfa.selftest.selftest import passed, report, verdict
    from mrcfa.selftest.selftest import selftest as lines_of

    if json_file is not None:
        check_writable(json_file)
    opened, lines = Bundle.open(bundle), []
    for line in lines_of(opened, cpp_tool):
        lines.append(line)
        typer.echo(str(line))
    typer.echo(verdict(lines))
    if json_file is not None:
        write_whole(json_file, report(opened, lines).encode())
        typer.echo(f"wrote {json_file}")
    raise typer.Exit(0 if passed(lines) else 1)
