import av
import numpy as np
import pytest
from PIL import Image

from mrcfa.data.sample import scene, write_sample
from mrcfa.data.vspw import VSPW
from mrcfa.errors import MrcfaError

SIZE = (96, 160)
NAMES = VSPW.labels.names


def labels(mask):
    return {NAMES[value - 1] if value else None for value in np.unique(mask)}


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others():
    first, again, other = (np.array(next(scene(1, SIZE, seed))[0]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("seed", range(3))
def test_a_scene_has_backgrounds_things_that_move_and_a_patch_without_truth(seed):
    masks = np.array([mask for _, mask in scene(24, SIZE, seed)])
    assert {"sky", "road", "building", "bus", "car", "person", "pole", None} <= labels(masks)
    assert 0.002 < (masks == 0).mean() < 0.1
    changed = (masks[1:] != masks[:-1]).mean((1, 2))
    assert (changed > 0.002).all()
    assert (changed < 0.3).all()


def test_the_mask_is_exact_where_colours_change():
    """Neighbours of different classes differ in colour far more than the grain does."""
    image, mask = next(scene(1, SIZE, seed=0))
    edges = mask[:, 1:] != mask[:, :-1]
    steps = np.abs(np.diff(image.astype(int), axis=1)).max(-1)
    assert np.median(steps[edges]) > 3 * np.median(steps[~edges])


def test_the_pole_hides_what_passes_behind_it():
    masks = np.array([mask for _, mask in scene(24, SIZE, seed=0)])
    bus, pole = NAMES.index("bus") + 1, NAMES.index("pole") + 1
    lines = masks[:, int(0.62 * SIZE[0])]
    assert any(
        line.tolist().index(bus) < line.tolist().index(pole) < 159 - line.tolist()[::-1].index(bus)
        for line in lines
        if {bus, pole} <= set(line.tolist())
    )


def test_the_folder_has_the_layout_of_vspw_and_a_video(tmp_path):
    write_sample(tmp_path / "sample", videos=2, frames=3, size=SIZE)
    root = tmp_path / "sample"
    assert (root / "val.txt").read_text() == "sample_0\nsample_1\n"
    for name in ("sample_0", "sample_1"):
        stems = [f"{t:08d}" for t in range(3)]
        images, masks = (sorted((root / "data" / name / kind).iterdir()) for kind in _KINDS)
        assert [path.name for path in images] == [f"{stem}.jpg" for stem in stems]
        assert [path.name for path in masks] == [f"{stem}.png" for stem in stems]
    with Image.open(root / "data" / "sample_0" / "mask" / "00000000.png") as mask:
        np.testing.assert_array_equal(np.asarray(mask), next(scene(1, SIZE, 0))[1])
    with av.open(str(root / "street.mp4")) as file:
        stream = file.streams.video[0]
        assert (stream.frames, stream.average_rate) == (3, 15)
        assert (stream.height, stream.width) == SIZE


_KINDS = ("origin", "mask")


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(MrcfaError, match="already there and not empty"):
        write_sample(tmp_path, videos=1, frames=1, size=SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
