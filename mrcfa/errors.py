"""The one exception that users meet: a sentence that names the thing and the remedy."""

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar


class MrcfaError(Exception):
    """Bad input or a machine that lacks something. The command line prints it and exits with 2."""


_Kind = TypeVar("_Kind", bound=Enum)


def member(kind: type[_Kind], value: str, what: str) -> _Kind:
    """The member of an enum that a user named."""
    try:
        return kind(value)
    except ValueError:
        valid = named(each.value for each in kind)
        raise MrcfaError(f"unknown {what} {value!r}; choose one of {valid}") from None


def named(items: Iterable[object], most: int = 10) -> str:
    """`a, b, c and 4 more`: a list that stays readable however long it is."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
