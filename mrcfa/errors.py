"""Errors with a kind and one sentence that names the thing and the remedy.

Programs and tests catch the kind; the sentence is for people and may change.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar


class MrcfaError(Exception):
    """Bad input, or something this machine lacks; the command line prints it and exits with 2."""


class InvalidValue(MrcfaError):
    """An option, an argument or a field has a value that cannot be used."""


class NotFound(MrcfaError):
    """A named file, folder, dataset split, camera, GPU or host does not exist."""


class AlreadyExists(MrcfaError):
    """The output already exists, and replacing it was not allowed."""


class Damaged(MrcfaError):
    """The content of a file does not match its name, its format or its hash."""


class Mismatch(MrcfaError):
    """Two inputs do not fit together, such as weights and a model, or a mask and its frame."""


class Unsupported(MrcfaError):
    """This bundle, machine or runtime cannot do this, but another one can."""


class WrongState(MrcfaError):
    """A call came too early or too late, such as one to a closed stream."""


class NotEqual(MrcfaError):
    """Exported graphs do not compute the same as their model."""


class RuntimeFailed(MrcfaError):
    """A runtime, a driver or a server accepted work and then failed."""


_Kind = TypeVar("_Kind", bound=Enum)


def member(kind: type[_Kind], value: str, noun: str) -> _Kind:
    """The enum member with this value; `noun` names it in the error."""
    try:
        return kind(value)
    except ValueError:
        valid = named(choice.value for choice in kind)
        raise InvalidValue(f"unknown {noun} {value!r}; choose one of {valid}") from None


def named(items: Iterable[object], most: int = 10) -> str:
    """The items as text, at most `most` of them: `a, b, c and 4 more`."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural if needed: `1 frame`, `2 frames`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
