"""Warnings: one sentence on standard error while the work continues."""

import sys

from mrcfa.console.addresses import without_secrets
from mrcfa.console.printable import printable


def warn(sentence: object) -> None:
    """Print one sentence on standard error, without secrets or control characters."""
    if sys.stderr is not None:  # print would use standard output instead
        print(f"mrcfa: {printable(without_secrets(str(sentence)))}", file=sys.stderr, flush=True)
