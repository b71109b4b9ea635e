"""Labels files: what they may say, and the sentence for each mistake."""

import json

import numpy as np
import pytest
from naming import naming

from mrcfa.data.cityscapes import CITYSCAPES
from mrcfa.data.labels import numbered, read_labels
from mrcfa.data.vspw import VSPW
from mrcfa.errors import Damaged, InvalidValue, NotFound


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "labels"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_text_has_a_name_per_line(file):
    labels = read_labels(file("\ufeffroad\n  parked car \n\ntree\n"))
    assert labels.names == ("road", "parked car", "tree")
    assert (labels.values, labels.ignore) == ((0, 1, 2), (255,))
    assert len(set(labels.colours)) == 3


def test_json_may_give_colours_values_and_what_is_ignored(file):
    content = {
        "names": ["road", "car"],
        "colours": [[1, 2, 3], [255, 0, 9]],
        "values": [10, 20],
        "ignore": [0, 255],
    }
    labels = read_labels(file(content))
    assert labels.colours == ((1, 2, 3), (255, 0, 9))
    mask = np.array([[0, 10, 20, 255]], np.uint8)
    assert labels.classes_of(mask, "m.png").tolist() == [[255, 0, 1, 255]]


MISTAKES = [
    (b"\xff\xfe\x00\x01\x80", Damaged, ()),
    (b"road\0car\n", Damaged, ()),
    ("{", Damaged, ("JSON",)),
    ("[" * 200_000, Damaged, ("JSON",)),
    ('["road", "car"]', InvalidValue, ('{"names": ["road", "car"]}',)),
    ({"name": ["a", "b"]}, InvalidValue, ('{"names": ["road", "car"]}',)),
    ({"names": ["a", "b"], "colors": []}, InvalidValue, ("colors", "colours")),
    ({"names": "ab"}, InvalidValue, ("names",)),
    ({"names": ["a", 5]}, InvalidValue, ("names",)),
    ({"names": ["a", " "]}, InvalidValue, ("names",)),
    ("", InvalidValue, (0, 2, 255)),
    ("one\n", InvalidValue, (1, 2, 255)),
    ("\n".join(map(str, range(256))), InvalidValue, (256, 2, 255)),
    ("a\nb\na\nb\nc\n", InvalidValue, ("a, b",)),
    ({"names": ["a", "b"], "colours": [[0, 0, 0]]}, InvalidValue, ("colours", 1, 2)),
    ({"names": ["a", "b"], "colours": 7}, InvalidValue, ("colours",)),
    ({"names": ["a", "b"], "colours": [[0, 0, 256], [0, 0, 0]]}, InvalidValue, ("[0, 0, 256]",)),
    ({"names": ["a", "b"], "colours": [[0, 0], [0, 0, 0]]}, InvalidValue, ("[0, 0]",)),
    ({"names": ["a", "b"], "values": [1, 1]}, InvalidValue, ("values", 0, 255)),
    ({"names": ["a", "b"], "values": [1, 300]}, InvalidValue, ("values", 0, 255)),
    ({"names": ["a", "b"], "values": [1]}, InvalidValue, ("values", 1, 2)),
    ({"names": ["a", "b"], "values": [0, True]}, InvalidValue, ("values", 0, 255)),
    ({"names": ["a", "b"], "ignore": 255}, InvalidValue, ("ignore",)),
    ({"names": ["a", "b"], "ignore": [1]}, InvalidValue, ("value", 1)),
]


@pytest.mark.parametrize(("content", "kind", "things"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_sentence_that_names_the_file(file, content, kind, things):
    path = file(content)
    with pytest.raises(kind, match=naming(path, *things)) as error:
        read_labels(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path / "gone.json")):
        read_labels(tmp_path / "gone.json")


def test_the_datasets_have_their_own_names_values_and_colours():
    assert (len(VSPW.labels.names), len(CITYSCAPES.labels.names)) == (124, 19)
    assert VSPW.labels.values == tuple(range(1, 125))
    assert CITYSCAPES.labels.colours[0] == (128, 64, 128)
    assert CITYSCAPES.labels.values[:3] == (7, 8, 11)


def test_classes_that_nobody_named_are_numbered():
    assert numbered(3).names == ("class 0", "class 1", "class 2")
