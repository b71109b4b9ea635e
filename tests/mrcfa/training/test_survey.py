"""What is said of a dataset before it is learnt."""

import json
import re

import numpy as np
import pytest
from naming import naming
from PIL import Image

from mrcfa.data.datasets import labelled_videos
from mrcfa.errors import Mismatch
from mrcfa.training.survey import remarks


@pytest.fixture
def root(tmp_path):
    for number, width in enumerate((96, 96, 64)):
        for kind, shape in (("origin", (64, width, 3)), ("mask", (64, width))):
            folder = tmp_path / "data" / f"v{number}" / kind
            folder.mkdir(parents=True)
            Image.fromarray(np.ones(shape, np.uint8)).save(folder / "0.png")
    (tmp_path / "train.txt").write_text("v0\nv1\nv2\n")
    (tmp_path / "labels.json").write_text(json.dumps({"names": ["road", "car", "tree"]}))
    return tmp_path


def test_mixed_sizes_and_classes_that_never_occur_are_told(root):
    sizes, classes = remarks(labelled_videos(root, "train", 0), reach=0)
    assert re.search(naming(2, "64x96", "64x64", "--size"), sizes)
    assert re.search(naming("road", "tree", 3), classes)
    assert "car" not in classes.split(" ")


def test_a_large_dataset_is_looked_at_in_parts(root, monkeypatch):
    monkeypatch.setattr("mrcfa.training.survey.MASKS", 2)
    found = remarks(labelled_videos(root, "train", 0), reach=0)
    assert re.search(naming("road", "tree", 2, 3), found[-1])


def test_a_value_outside_the_labels_is_an_error_that_names_the_file(root):
    mask = root / "data" / "v1" / "mask" / "0.png"
    Image.fromarray(np.full((64, 96), 9, np.uint8)).save(mask)
    with pytest.raises(Mismatch, match=naming(mask, 9)):
        remarks(labelled_videos(root, "train", 0), reach=0)
