"""Deserialises JSON into frozen dataclasses by their annotations; unknown fields are ignored.

What is wrong raises `Damage`, whose text says what and is the same in C++ (engines/cpp).
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mrcfa.errors import MrcfaError

_Record = TypeVar("_Record")


class Damage(ValueError):
    """Why a document cannot be read."""


def in_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Damage(f"{name} is no integer from {low} to {high}")


def from_json(kind: type[_Record], content: Any) -> _Record:
    """The dataclass `kind` from a JSON object."""
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
    except MrcfaError as error:  # values that the record itself refuses
        raise Damage(str(error)) from None


def _value(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (each for each in arguments if each is not type(None))
        return _value(kind, value, name)
    if origin is tuple:
        return _tuple(arguments, value, name)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise Damage(f"{name} is no object")
        return {key: _value(arguments[1], each, name) for key, each in value.items()}
    if is_dataclass(kind):
        return from_json(kind, value)  # type: ignore[arg-type]  # a class, not an instance
    if issubclass(kind, Enum):
        return _member(kind, value, name)
    return _scalar(kind, value, name)


def _tuple(kinds: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Damage(f"{name} is no list")
    if kinds[-1] is Ellipsis:
        return tuple(_value(kinds[0], each, name) for each in value)
    if len(value) != len(kinds):
        raise Damage(f"{name} is no list of {len(kinds)}")
    return tuple(_value(kind, each, name) for kind, each in zip(kinds, value, strict=True))


def _member(kind: type[Enum], value: Any, name: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        valid = [str(each.value) for each in kind]
        if len(valid) == 2:
            raise Damage(f"{name} is neither {valid[0]} nor {valid[1]}") from None
        raise Damage(f"{name} is none of {', '.join(valid)}") from None


_WORDS = {str: "text", int: "integer", float: "number", bool: "truth value"}


def _scalar(kind: type, value: Any, name: str) -> Any:
    """JSON's numbers are integers where they have no point, and true is no number."""
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise Damage(f"{name} is no {_WORDS[kind]}")
    return kind(value)
