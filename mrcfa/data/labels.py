"""`Labels`: class names and colours, and the pixel values of the classes in mask files."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.bounds import FEWEST_CLASSES, LABELS_BYTES, MOST_CLASSES, TEXT
from mrcfa.console.printable import printable
from mrcfa.data.decoding import Damage, document, text_of
from mrcfa.errors import Damaged, InvalidValue, Mismatch, NotFound, named

Colour = tuple[int, int, int]

IGNORED = 255
"""The class number of pixels without ground truth."""
_FIELDS = {"names", "colours", "values", "ignore"}


@dataclass(frozen=True)
class Labels:
    """The classes of a dataset or a model, in the order of the model's output."""

    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    values: tuple[int, ...]
    """The value of each class in mask files."""
    ignore: tuple[int, ...]
    """Values in mask files that mean no ground truth."""

    def classes_of(self, mask: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
        """The classes of a mask file's values, counted from 0; `IGNORED` without ground truth."""
        table = np.full(256, IGNORED, np.uint8)
        table[list(self.values)] = np.arange(len(self.values))
        unknown = set(np.unique(mask).tolist()) - {*self.values, *self.ignore}
        if unknown:
            raise Mismatch(
                f"the mask {path} has the value {min(unknown)}, which is neither a class nor "
                "ignored in the labels; correct the mask or the labels"
            )
        return table[mask]


def labels(
    names: Sequence[str],
    colours: Sequence[Colour] | None = None,
    values: Sequence[int] | None = None,
    ignore: Sequence[int] = (IGNORED,),
) -> Labels:
    """Labels; the defaults are VOC's colours and the values 0, 1, 2, …"""
    return Labels(
        tuple(names),
        tuple(colours or voc_colours(len(names))),
        tuple(range(len(names)) if values is None else values),
        tuple(ignore),
    )


def numbered(classes: int) -> Labels:
    """Labels named `class 0`, `class 1`, … for a model without class names."""
    return labels([f"class {index}" for index in range(classes)])


def read_labels(path: Path) -> Labels:
    """Read a labels file: one name per line, or JSON with names, colours, values and ignore.

    In JSON all but the names are optional. Every error names the file.
    """
    try:
        text = text_of(path, LABELS_BYTES)
    except FileNotFoundError:
        raise NotFound(f"there is no labels file {path}") from None
    except (OSError, UnicodeDecodeError, Damage) as error:
        raise Damaged(f"{path} is not a text file of labels: {error}") from None
    if "\0" in text:
        raise Damaged(f"{path} is not a text file of labels: it holds binary data")
    if text.lstrip().startswith(("{", "[")):
        return _from_json(text, path)
    return _checked(path, [line.strip() for line in text.splitlines() if line.strip()])


def _from_json(text: str, path: Path) -> Labels:
    try:
        content = document(text)
    except ValueError as error:
        raise Damaged(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict) or "names" not in content:
        raise InvalidValue(f'{path} names no classes; write {{"names": ["road", "car"]}}')
    unknown = sorted(content.keys() - _FIELDS)
    if unknown:
        raise InvalidValue(
            f"{path} has unknown fields {named(unknown)}; it may have {named(sorted(_FIELDS))}"
        )
    return _checked(path, **content)


def _checked(
    path: Path, names: Any, colours: Any = None, values: Any = None, ignore: Any = (IGNORED,)
) -> Labels:
    def refuse(reason: str) -> InvalidValue:
        return InvalidValue(f"{path} cannot be used: {reason}")

    if not isinstance(names, list) or not all(
        isinstance(name, str) and name.strip() for name in names
    ):
        raise refuse("names is not a list of texts")
    if not FEWEST_CLASSES <= len(names) <= MOST_CLASSES:
        raise refuse(
            f"it names {len(names)} classes, and a uint8 mask holds {FEWEST_CLASSES} to "
            f"{MOST_CLASSES}"
        )
    names = [printable(name) for name in names]
    if max(map(len, names)) > TEXT:
        raise refuse(f"one of the names has more than {TEXT} characters")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(f"it names {named(twice)} more than once; every class needs its own name")
    if colours is not None:
        _expect_one_each("colours", colours, len(names), refuse)
        for colour in colours:
            if not isinstance(colour, list) or len(colour) != 3 or not all(map(_is_byte, colour)):
                raise refuse(
                    f"the colour {reprlib.repr(colour)} is not [red, green, blue] from 0 to 255"
                )
        colours = [tuple(colour) for colour in colours]
    if values is not None:
        _expect_one_each("values", values, len(names), refuse)
        if not all(map(_is_byte, values)) or len(set(values)) < len(values):
            raise refuse("values must be different numbers from 0 to 255, one for each class")
    if not isinstance(ignore, list | tuple) or not all(map(_is_byte, ignore)):
        raise refuse("ignore must be a list of numbers from 0 to 255")
    made = labels(names, colours, values, ignore)
    in_both = sorted(set(made.values) & set(made.ignore))
    if in_both:
        raise refuse(f"the value {in_both[0]} is both a class and ignored; remove one of them")
    return made


def _expect_one_each(field: str, found: Any, wanted: int, refuse: Any) -> None:
    if not isinstance(found, list):
        raise refuse(f"{field} is not a list")
    if len(found) != wanted:
        raise refuse(f"{field} has {len(found)} entries for {wanted} names")


def _is_byte(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def voc_colours(count: int) -> tuple[Colour, ...]:
    """Colours of PASCAL VOC's colour map, which never repeats, without its black."""
    return tuple(_voc_colour(index + 1) for index in range(count))


def _voc_colour(index: int) -> Colour:
    """VOC's colour of an index: its bits go to red, green and blue cyclically, high bits first."""
    channels = [0, 0, 0]
    for bit in range(8):
        channels[bit % 3] |= (index >> bit & 1) << (7 - bit // 3)
    return channels[0], channels[1], channels[2]
