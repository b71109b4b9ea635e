"""`mrcfa inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.console.arguments import AsJson


def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a bundle without loading it."""
    from mrcfa.bundle import Bundle
    from mrcfa.bundle.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))
