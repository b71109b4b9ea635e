"""Classes of one's own, from a labels file and a checkpoint to masks and scores."""

import json

import numpy as np
import pytest
import torch
from cases import authors_state
from naming import names
from PIL import Image

from mrcfa.bundle import Bundle
from mrcfa.stream.stream import Stream

pytestmark = pytest.mark.usefixtures("one_block")
NAMES = ["road", "parked car", "tree", "sky", "person", "dog", "kerb"]
ONE_BLOCK = (1, 1, 1, 1)
COLOURS = [[10 * index, 20, 30] for index in range(7)]


def seven_of(state):
    """A checkpoint in the authors' layout whose heads have seven classes."""
    heads = ("linear_pred", "conv_seg", "deco1", "deco2", "deco3", "deco4")
    return {
        key: value[:7].clone() if any(head in key for head in heads) else value
        for key, value in state.items()
    }


@pytest.fixture
def seven(tmp_path):
    """seven.json, a checkpoint of seven classes, and a dataset of one's own."""
    labels = {"names": NAMES, "colours": COLOURS, "ignore": [255, 9]}
    (tmp_path / "seven.json").write_text(json.dumps(labels))
    torch.save(
        {"state_dict": seven_of(authors_state("b0", depths=ONE_BLOCK))}, tmp_path / "seven.pth"
    )
    root = tmp_path / "own"
    for kind in ("origin", "mask"):
        (root / "data" / "drive" / kind).mkdir(parents=True)
    noise = np.random.default_rng(0)
    for t in range(9):
        image = noise.integers(0, 256, (96, 160, 3), np.uint8)
        Image.fromarray(image).save(root / "data" / "drive" / "origin" / f"{t:04d}.png")
        if t % 2 == 0:
            mask = np.where(image[..., 0] > 250, 9, image[..., 1] % 7).astype(np.uint8)
            Image.fromarray(mask).save(root / "data" / "drive" / "mask" / f"{t:04d}.png")
    (root / "val.txt").write_text("drive\n")
    (root / "labels.json").write_text(json.dumps(labels))
    return tmp_path


EXPORT = ("export", "--backbone", "b0", "--size", "96x160", "--variants", "fp32", "-o", "x")


@pytest.mark.thorough
def test_from_a_checkpoint_to_names_masks_and_scores(seven, command):
    code, _, err = command(*EXPORT, "--labels", "seven.json", "--weights", "seven.pth")
    assert (code, err) == (0, "")
    bundle = Bundle.open(seven / "x")
    assert list(bundle.manifest.classes) == NAMES
    assert [list(colour) for colour in bundle.manifest.palette] == COLOURS
    assert not bundle.manifest.weights.random

    code, _, err = command("run", "x", "own/data/drive/origin", "-o", "masks.npz")
    assert code == 0, err
    with np.load("masks.npz") as masks:
        assert masks["classes"].tolist() == NAMES
        assert masks["0000"].max() < 7

    code, out, err = command("eval", "x", "own", "--json")
    assert (code, err) == (0, "")
    (scores,) = json.loads(out)["evaluations"]
    assert scores["iou"].keys() <= set(NAMES)
    assert scores["frames"] == 5
    assert 0 <= scores["metrics"]["mIoU"] < 1
    assert scores["metrics"]["mVC8"] is None  # frames lack masks, so consistency is undefined


def test_a_checkpoint_with_another_number_of_classes_is_told_with_both(seven, command):
    (seven / "three.txt").write_text("road\ncar\ntree\n")
    for labels, count in ((["--labels", "three.txt"], 3), ([], 124)):
        code, _, err = command(*EXPORT, "--weights", "seven.pth", *labels)
        assert code == 2
        assert names(err, "seven.pth", 7, count, "--labels")
        assert err.count("\n") == 1
        assert not (seven / "x").exists()


@pytest.mark.thorough
def test_random_weights_take_the_names_and_other_names_are_not_scored(seven, command):
    other = json.loads((seven / "seven.json").read_text())
    other["names"][1] = "car"
    (seven / "other.json").write_text(json.dumps(other))
    assert command(*EXPORT, "--labels", "other.json")[0] == 0
    assert list(Stream(seven / "x").classes) == other["names"]
    code, _, err = command("eval", "x", "own")
    assert code == 2
    assert names(err, "x", "'car'", "own", "'parked car'")
