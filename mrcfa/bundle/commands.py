"""`mrcfa inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.console.arguments import AsJson


def inspect(
    bundle: Annotated[Path, typer.Argument(help="Directory of the bundle.")],
    as_json: AsJson = False,
) -> None:
    """Print a bundle's contents (config, variants, parity, engines) without loading its graphs."""
    from mrcfa.bundle import Bundle
    from mrcfa.bundle.inspection import summary

    opened = Bundle.open(bundle)
    typer.echo(opened.manifest.to_json() if as_json else summary(opened))
