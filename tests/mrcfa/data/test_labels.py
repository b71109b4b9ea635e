"""Labels files: what they may say, and the sentence for each mistake."""

import json

import numpy as np
import pytest

from mrcfa.data.cityscapes import CITYSCAPES
from mrcfa.data.labels import numbered, read_labels
from mrcfa.data.vspw import VSPW
from mrcfa.errors import MrcfaError


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
    (b"\xff\xfe\x00\x01\x80", "is no text file of labels"),
    (b"road\0car\n", "holds binary data"),
    ("{", "is no valid JSON"),
    ("[" * 200_000, "is no valid JSON"),
    ('["road", "car"]', 'names no classes; write {"names"'),
    ({"name": ["a", "b"]}, "names no classes"),
    ({"names": ["a", "b"], "colors": []}, "unknown fields colors; it may have colours"),
    ({"names": "ab"}, "names is no list of texts"),
    ({"names": ["a", 5]}, "names is no list of texts"),
    ({"names": ["a", " "]}, "names is no list of texts"),
    ("", "names 0 classes, and a uint8 mask holds 2 to 255"),
    ("one\n", "names 1 classes"),
    ("\n".join(map(str, range(256))), "names 256 classes"),
    ("a\nb\na\nb\nc\n", "names a, b more than once"),
    ({"names": ["a", "b"], "colours": [[0, 0, 0]]}, "colours has 1 entries for 2 names"),
    ({"names": ["a", "b"], "colours": 7}, "colours is no list"),
    ({"names": ["a", "b"], "colours": [[0, 0, 256], [0, 0, 0]]}, "the colour [0, 0, 256]"),
    ({"names": ["a", "b"], "colours": [[0, 0], [0, 0, 0]]}, "the colour [0, 0]"),
    ({"names": ["a", "b"], "values": [1, 1]}, "values are not different numbers"),
    ({"names": ["a", "b"], "values": [1, 300]}, "values are not different numbers"),
    ({"names": ["a", "b"], "values": [1]}, "values has 1 entries for 2 names"),
    ({"names": ["a", "b"], "values": [0, True]}, "values are not different numbers"),
    ({"names": ["a", "b"], "ignore": 255}, "ignore is no list"),
    ({"names": ["a", "b"], "ignore": [1]}, "the value 1 is a class and ignored"),
]


@pytest.mark.parametrize(("content", "says"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_sentence_that_names_the_file(file, content, says):
    path = file(content)
    with pytest.raises(MrcfaError) as error:
        read_labels(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MrcfaError, match="there is no labels file"):
        read_labels(tmp_path / "gone.json")


def test_the_datasets_have_their_own_names_values_and_colours():
    assert (len(VSPW.labels.names), len(CITYSCAPES.labels.names)) == (124, 19)
    assert VSPW.labels.values == tuple(range(1, 125))
    assert CITYSCAPES.labels.colours[0] == (128, 64, 128)
    assert CITYSCAPES.labels.values[:3] == (7, 8, 11)


def test_classes_that_nobody_named_are_numbered():
    assert numbered(3).names == ("class 0", "class 1", "class 2")
