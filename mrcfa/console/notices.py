"""Warnings: one sentence on standard error while the work continues."""

import sys

from mrcfa.console.addresses import without_secrets


def warn(sentence: object) -> None:
    """Print one sentence on standard error, without secrets."""
    if sys.stderr is not None:  # print would use standard output instead
        print(f"mrcfa: {without_secrets(str(sentence))}", file=sys.stderr, flush=True)
