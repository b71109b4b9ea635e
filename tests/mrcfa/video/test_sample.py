"""The sample world, and the dataset that is made of it."""

import json

import av
import numpy as np
import pytest
from naming import naming
from PIL import Image

from mrcfa.data.datasets import labelled_videos
from mrcfa.data.world.labels import WORLD
from mrcfa.data.world.scene import scene
from mrcfa.errors import AlreadyExists
from mrcfa.video.sample import FIRST_SEED, write_sample

SIZE = (96, 160)


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others():
    first, again, other = (next(scene(1, SIZE, seed)) for seed in (0, 0, 1))
    for ours, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, same)
    assert (first[0] != other[0]).any()


@pytest.mark.parametrize("size", [SIZE, (480, 864), (64, 64), (97, 161)])
def test_images_and_masks_have_the_size_asked_for(size):
    image, mask = next(scene(1, size, seed=3))
    assert (image.shape, mask.shape) == ((*size, 3), size)
    assert (image.dtype, mask.dtype) == (np.uint8, np.uint8)
    assert mask.max() < len(WORLD.names)


@pytest.mark.thorough
def test_a_hundred_scenes_show_every_class_and_every_weather():
    frames = [next(scene(1, SIZE, seed)) for seed in range(100)]
    shown = np.bincount(np.concatenate([mask.ravel() for _, mask in frames]), minlength=12)
    assert (shown / shown.sum() > 0.002).all(), dict(zip(WORLD.names, shown, strict=True))
    brightness = np.array([image.mean() for image, _ in frames])
    assert brightness.min() < 60 < 120 < brightness.max()


@pytest.mark.parametrize("seed", range(4))
def test_frames_follow_each_other_and_have_noise_of_their_own(seed):
    images, masks = (np.array(part) for part in zip(*scene(10, SIZE, seed), strict=True))
    changed = (masks[1:] != masks[:-1]).mean((1, 2))
    assert (changed < 0.35).all()
    assert (images[1:] != images[:-1]).mean((1, 2, 3)).min() > 0.3


def test_some_videos_cut_to_another_street():
    changes = []
    for seed in range(20):
        masks = np.array([mask for _, mask in scene(12, SIZE, seed)])
        changes.append((masks[1:] != masks[:-1]).mean((1, 2)).max())
    assert 1 <= sum(change > 0.35 for change in changes) <= 12


def step_ratio(image, mask):
    """How much more neighbours of different classes differ than others do."""
    edges = mask[:, 1:] != mask[:, :-1]
    steps = np.abs(np.diff(image.astype(int), axis=1)).max(-1)
    return np.median(steps[edges]) / np.median(steps[~edges])


def test_the_mask_is_exact_where_colours_change():
    """In the clearest of three frames, as the camera spoils some; noise hides it in few videos."""
    size = (192, 320)
    ratios = [max(step_ratio(*frame) for frame in scene(3, size, seed)) for seed in range(12)]
    assert np.quantile(ratios, 0.1) > 1.1
    assert np.median(ratios) > 1.5


def test_the_camera_spoils_some_frames_of_most_videos():
    """A frame that is far darker than the video, or as coarse as its blocks."""
    dark = coarse = 0
    for seed in range(30):
        images = np.array([image for image, _ in scene(10, SIZE, seed)])
        levels = images.mean((1, 2, 3))
        dark += int((levels < 0.65 * np.median(levels)).sum())
        steps = np.abs(np.diff(images.astype(int), axis=2)).mean((1, 3))
        inside, at_blocks = steps[:, 0::2].mean(1), steps[:, 1::2].mean(1)
        coarse += int((at_blocks > 1.5 * inside).sum())
    assert 5 <= dark <= 40
    assert 5 <= coarse <= 40


def test_the_folder_is_a_dataset_of_ones_own_with_a_video(tmp_path):
    root = tmp_path / "sample"
    write_sample(root, {"train": 1, "val": 2, "test": 1}, frames=3, size=SIZE)
    assert json.loads((root / "labels.json").read_text())["names"] == list(WORLD.names)
    for split, count in (("train", 1), ("val", 2), ("test", 1)):
        videos = labelled_videos(root, split, reach=9)
        assert videos.labels == WORLD
        assert videos.dense
        assert [len(clip.images) for clip in videos.clips] == [3] * count
    with Image.open(root / "data" / "val_1" / "mask" / "00000000.png") as mask:
        wanted = next(scene(3, SIZE, FIRST_SEED["val"] + 1))[1]
        np.testing.assert_array_equal(np.asarray(mask), wanted)
    with av.open(str(root / "street.mp4")) as file:
        stream = file.streams.video[0]
        assert (stream.frames, stream.average_rate) == (3, 15)
        assert (stream.height, stream.width) == SIZE


def test_many_videos_are_drawn_by_several_processes_alike(tmp_path):
    write_sample(tmp_path / "many", {"val": 8}, frames=1, size=(64, 96))
    with Image.open(tmp_path / "many" / "data" / "val_7" / "mask" / "00000000.png") as mask:
        wanted = next(scene(1, (64, 96), FIRST_SEED["val"] + 7))[1]
        np.testing.assert_array_equal(np.asarray(mask), wanted)


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(AlreadyExists, match=naming(tmp_path)):
        write_sample(tmp_path, {"val": 1}, frames=1, size=SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
