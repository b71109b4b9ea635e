"""The summary of a dataset before training starts."""

import json
import re

import numpy as np
import pytest
from naming import names, naming
from PIL import Image

from mrcfa.data.datasets import labelled_videos
from mrcfa.errors import Mismatch
from mrcfa.training.survey import summary


@pytest.fixture
def root(tmp_path):
    for number, width in enumerate((96, 96, 64)):
        for kind, shape in (("origin", (64, width, 3)), ("mask", (64, width))):
            folder = tmp_path / "data" / f"v{number}" / kind
            folder.mkdir(parents=True)
            Image.fromarray(np.ones(shape, np.uint8)).save(folder / "0.png")
    for split in ("train", "val"):
        (tmp_path / f"{split}.txt").write_text("v0\nv1\nv2\n")
    (tmp_path / "labels.json").write_text(json.dumps({"names": ["road", "car", "tree"]}))
    return tmp_path


def told(root, reach=0):
    return summary(*(labelled_videos(root, split, 0) for split in ("train", "val")), reach)


def test_what_there_is_of_each_split_is_told(root):
    (root / "data" / "v1" / "mask" / "0.png").rename(root / "data" / "v0" / "mask" / "9.png")
    Image.new("RGB", (96, 64)).save(root / "data" / "v2" / "origin" / "1.png")
    (root / "train.txt").write_text("v0\nv2\n")
    (root / "val.txt").write_text("v2\n")
    train, unused, val, *_ = told(root)
    assert names(train, "train", 2, 3, "frames", "masks", 1)
    assert names(unused, "train", 1, "v0/mask/9.png")
    assert names(val, "val", 1, 2)


@pytest.mark.parametrize("name", ["0_L.png", "0.jpg", "0.PNG"])
def test_masks_that_belong_to_no_frame_are_named(root, name):
    """One is right and two are not, which trained without a word."""
    for video in ("v1", "v2"):
        folder = root / "data" / video
        Image.new("RGB", (96, 64)).save(folder / "origin" / "1.png")
        Image.fromarray(np.ones((64, 96), np.uint8)).save(folder / "mask" / "1.png")
        (folder / "mask" / "0.png").rename(folder / "mask" / name)
    (unused, _) = (line for line in told(root) if "not used" in line)
    assert names(unused, 2, f"v1/mask/{name}", f"v2/mask/{name}")


def test_the_classes_shares_are_told_largest_first(root):
    mask = np.ones((64, 96), np.uint8)
    mask[:16] = 2
    mask[48:] = 255
    for video in ("v0", "v1", "v2"):
        Image.fromarray(mask).save(root / "data" / video / "mask" / "0.png")
    (shares,) = (line for line in told(root) if "car" in line and "%" in line)
    assert names(shares, 3, "66.7%", "33.3%", "25.0%")
    assert shares.index("car") < shares.index("tree")


def test_mixed_sizes_and_classes_that_never_occur_are_told(root):
    *_, classes, sizes = told(root)
    assert re.search(naming(2, "64x96", "64x64", "--size"), sizes)
    assert re.search(naming("road", "tree", 3), classes)
    assert "car" not in classes.split(" ")


def test_a_large_dataset_is_looked_at_in_parts(root, monkeypatch):
    monkeypatch.setattr("mrcfa.training.survey.MASKS", 2)
    (found,) = (line for line in told(root) if "never occur" in line)
    assert names(found, "road", "tree", 2, 3)


def test_a_value_outside_the_labels_is_an_error_that_names_the_file(root):
    mask = root / "data" / "v1" / "mask" / "0.png"
    Image.fromarray(np.full((64, 96), 9, np.uint8)).save(mask)
    with pytest.raises(Mismatch, match=naming(mask, 9)):
        told(root)
