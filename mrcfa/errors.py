"""The one exception that users meet: a sentence that names the thing and the remedy."""

from collections.abc import Iterable


class MrcfaError(Exception):
    """Bad input or a machine that lacks something. The command line prints it and exits with 2."""


def named(items: Iterable[object], most: int = 10) -> str:
    """`a, b, c and 4 more`: a list that stays readable however long it is."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
