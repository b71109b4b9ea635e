"""Decoding of untrusted JSON into frozen dataclasses by their annotations.

Unknown fields are ignored. Control characters in texts are escaped, so that no text can change a
terminal. Errors raise `Damage` with the same sentence as in C++ (engines/cpp).
"""

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mrcfa.bounds import DEPTH, ENTRIES, NUMBER, TEXT
from mrcfa.console.printable import printable
from mrcfa.errors import MrcfaError

_Record = TypeVar("_Record")


class Damage(ValueError):
    """A document cannot be read; the message is the reason."""


def text_of(path: Path, most: int) -> str:
    """The text of a file; `Damage` for a file of more than `most` bytes, which are not read."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Damage(f"it has more than {most} bytes")
    return content.decode("utf-8-sig")


def document(text: str) -> Any:
    """Parse JSON; numbers, texts, lists and nesting must stay within `mrcfa.bounds`."""
    try:
        content = json.loads(
            text, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
    except RecursionError:
        raise Damage(_TOO_DEEP) from None
    _check_bounds(content, DEPTH)
    return content


_TOO_DEEP = "it is nested too deeply"
_TOO_LARGE = "it holds a number of 2^63 or more"


def _integer(text: str) -> int:
    if len(text) > 20 or not abs(int(text)) < NUMBER:
        raise Damage(_TOO_LARGE)
    return int(text)


def _number(text: str) -> float:
    if not abs(float(text)) < NUMBER:
        raise Damage(_TOO_LARGE)
    return float(text)


def _constant(text: str) -> float:
    raise Damage(f"it holds {text}, which is no number")


def _check_bounds(content: Any, depth: int) -> None:
    if isinstance(content, str):
        _check_text(content)
    elif isinstance(content, dict | list):
        if depth == 0:
            raise Damage(_TOO_DEEP)
        if len(content) > ENTRIES:
            raise Damage(f"it has a list of more than {ENTRIES} entries")
        if isinstance(content, dict):
            for key in content:
                _check_text(key)
            content = list(content.values())
        for entry in content:
            _check_bounds(entry, depth - 1)


def _check_text(text: str) -> None:
    if len(text) > TEXT:
        raise Damage(f"it holds a text of more than {TEXT} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Damage(f"it holds {text!r}, which is half a character") from None


def at_most(name: str, count: int, most: int) -> None:
    """Raise `Damage` if a list has too many entries."""
    if count > most:
        raise Damage(f"{name} has {count} entries, and at most {most} are allowed")


def in_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `Damage` if an integer lies outside `low` to `high`."""
    if not low <= value <= high:
        raise Damage(f"{name} is no integer from {low} to {high}")


def from_json(kind: type[_Record], content: Any) -> _Record:
    """Make the dataclass `kind` from a parsed JSON object."""
    made = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        if not isinstance(content, dict):
            raise Damage(f"there is no object that could hold '{field.name}'")
        if field.name in content:
            made[field.name] = _value(hints[field.name], content[field.name], field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Damage(f"it lacks '{field.name}'")
    try:
        return kind(**made)
    except MrcfaError as error:  # the dataclass refuses its values
        raise Damage(str(error)) from None


def _value(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (member for member in arguments if member is not type(None))
        return _value(kind, value, name)
    if origin is tuple:
        return _tuple(arguments, value, name)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise Damage(f"{name} is no object")
        for key in value:
            if printable(key) != key:
                raise Damage(f"{name} names '{printable(key)}', which no terminal can show")
        return {key: _value(arguments[1], entry, name) for key, entry in value.items()}
    if is_dataclass(kind):
        return from_json(kind, value)  # type: ignore[arg-type]  # a class, not an instance
    if issubclass(kind, Enum):
        return _member(kind, value, name)
    return _scalar(kind, value, name)


def _tuple(kinds: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Damage(f"{name} is no list")
    if kinds[-1] is Ellipsis:
        return tuple(_value(kinds[0], entry, name) for entry in value)
    if len(value) != len(kinds):
        raise Damage(f"{name} is no list of {len(kinds)}")
    return tuple(_value(kind, entry, name) for kind, entry in zip(kinds, value, strict=True))


def _member(kind: type[Enum], value: Any, name: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        valid = [str(member.value) for member in kind]
        if len(valid) == 2:
            raise Damage(f"{name} is neither {valid[0]} nor {valid[1]}") from None
        raise Damage(f"{name} is none of {', '.join(valid)}") from None


_WORDS = {str: "text", int: "integer", float: "number", bool: "truth value"}


def _scalar(kind: type, value: Any, name: str) -> Any:
    """A text, number or truth value; numbers without a point are integers, true is no number."""
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise Damage(f"{name} is no {_WORDS[kind]}")
    return printable(value) if isinstance(value, str) else kind(value)
