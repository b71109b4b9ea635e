"""JSON to dataclasses: types are checked, unknown fields ignored, mistakes named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pytest
from naming import naming

from mrcfa.data.decoding import Damage, from_json


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pair: tuple[int, float]
    colour: Colour
    parts: Mapping[str, Inner]
    note: str | None
    flag: bool = False
    extra: Mapping[str, int] = field(default_factory=dict)


GOOD = {
    "inner": {"name": "a", "sizes": [1, 2]},
    "pair": [1, 2],
    "colour": "red",
    "parts": {"one": {"name": "b", "unknown": 5}},
    "note": None,
    "unknown": {"deep": []},
}


def test_annotations_say_what_becomes_of_the_json():
    made = from_json(Outer, GOOD)
    assert made == Outer(
        Inner("a", (1, 2)), (1, 2.0), Colour.RED, {"one": Inner("b")}, None, False, {}
    )
    assert isinstance(made.pair[1], float)


@pytest.mark.parametrize(
    ("change", "things"),
    [
        ({"inner": 5}, ("name",)),
        ({"inner": {}}, ("name",)),
        ({"inner": {"name": 5}}, ("name",)),
        ({"inner": {"name": "a", "sizes": 5}}, ("sizes",)),
        ({"inner": {"name": "a", "sizes": [1.5]}}, ("sizes",)),
        ({"inner": {"name": "a", "sizes": [True]}}, ("sizes",)),
        ({"pair": [1]}, ("pair", 2)),
        ({"pair": [1, "x"]}, ("pair",)),
        ({"colour": "green"}, ("colour", "red", "blue")),
        ({"parts": []}, ("parts",)),
        ({"note": 5}, ("note",)),
        ({"flag": 1}, ("flag",)),
        ({"extra": {"a": None}}, ("extra",)),
    ],
    ids=str,
)
def test_a_mistake_is_named(change, things):
    with pytest.raises(Damage, match=naming(*things)):
        from_json(Outer, {**GOOD, **change})


@pytest.mark.parametrize("missing", ["inner", "pair", "colour", "parts", "note"])
def test_what_has_no_default_is_missed(missing):
    content = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(Damage, match=naming(missing)):
        from_json(Outer, content)
