"""The errors that users meet: a sentence that names the thing and the remedy, and its kind.

A program that calls mrcfa, and a test, catch the kind; the sentence is for people and may change.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar


class MrcfaError(Exception):
    """Bad input or a machine that lacks something. The command line prints it and exits with 2."""


class InvalidValue(MrcfaError):
    """An option, an argument or a field has a value that cannot be used."""


class NotFound(MrcfaError):
    """A file, folder, dataset split, camera, GPU or host that was named is not there."""


class AlreadyExists(MrcfaError):
    """The output is there already and was not to be replaced."""


class Damaged(MrcfaError):
    """The content of a file is not what its name, its format or its hash promises."""


class Mismatch(MrcfaError):
    """Two inputs do not fit together: weights and a model, a mask and its frame."""


class Unsupported(MrcfaError):
    """This bundle, machine or runtime cannot do what was asked, but another one can."""


class WrongState(MrcfaError):
    """A call came too early or too late: a closed stream, frames still in flight."""


class NotEqual(MrcfaError):
    """Graphs do not compute the model that they were made from."""


class RuntimeFailed(MrcfaError):
    """A runtime, a driver or a server failed at work that it had accepted."""


_Kind = TypeVar("_Kind", bound=Enum)


def member(kind: type[_Kind], value: str, what: str) -> _Kind:
    """The member of an enum that a user named."""
    try:
        return kind(value)
    except ValueError:
        valid = named(each.value for each in kind)
        raise InvalidValue(f"unknown {what} {value!r}; choose one of {valid}") from None


def named(items: Iterable[object], most: int = 10) -> str:
    """`a, b, c and 4 more`: a list that stays readable however long it is."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, noun: str) -> str:
    """`1 frame`, `2 frames`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
