"""Changed manifests: the cases of golden/manifests.json, which both languages read alike, and any
number of random ones."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parents[1] / "golden/manifests.json").read_text())
"""`at` names a place, which `is` this value, `raw` this text or the `first` of what was there; a
value is repeated so many `times`. `refused` is a word of the error or null; where a `parser` finds
it, or one language says it in other `words`, sentences differ."""

_RAW = "here stands the raw text"
WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, 1e18, 255, 256, 65536, 2**31, 2**63 - 1, 2**63, 10**400),
    *(float("nan"), float("inf"), "", "..", "a\0b", "\x1b[31m\r\n", "\ud800", "x" * 4096, "mask"),
    *("x" * 5000, "fp32", "float32", "logits", "../file", "decoder.onnx", [], {}, [[]], [1, 2, 3]),
    *([0] * 70_000, [1] * 9, [2**15, 2**16], {"": {}}, {"sha256": "", "bytes": 0}, "\u202e"),
)


def applied(case: Case, manifest: Any) -> str:
    content = copy.deepcopy(manifest)
    if "at" in case:
        *above, last = case["at"]
        place = content
        for step in above:
            place = place[step]
        if "first" in case:
            place[last] = place[last][: case["first"]]
        else:
            place[last] = (
                case.get("is", _RAW) * case.get("times", 1)
                if "times" in case
                else (case.get("is", _RAW))
            )
    text = json.dumps(content).replace(json.dumps(_RAW), case.get("raw", ""))
    return case.get("before", "") + text


def mutations(manifest: Any, count: int, seed: int = 0) -> Iterator[str]:
    """The manifest with one to three fields replaced, left out, repeated or exchanged."""
    chance = random.Random(seed)
    valid = json.dumps(manifest)
    for _ in range(count):
        content = json.loads(valid)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _mutate(content, chance)
        yield json.dumps(content)


def _mutate(content: Any, chance: random.Random) -> None:
    place, key = chance.choice(list(_places(content)))
    kind = chance.randrange(10)
    if kind < 6:
        place[key] = copy.deepcopy(chance.choice(WRONG))
    elif kind == 6:
        del place[key]
    elif kind == 7 and isinstance(place, list):
        place *= chance.choice((2, 3, 50))
    elif kind == 8 and isinstance(place[key], int | float):
        place[key] *= chance.choice((-1, 2, 3, 10**6, 0.5))
    else:
        other, there = chance.choice(list(_places(content)))
        place[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(place[key])


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every field and entry, but one in ten of long lists."""
    steps = list(content) if isinstance(content, dict) else range(len(content))
    for number, step in enumerate(steps):
        if number < 10 or number % 10 == 0:
            yield content, step
            if isinstance(content[step], dict | list):
                yield from _places(content[step])
