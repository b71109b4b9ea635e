"""The clips of training, which are a function of their number."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_vspw import write_vspw
from torch.utils.data import DataLoader

from mrcfa.data.datasets import labelled_videos
from mrcfa.data.labels import IGNORED
from mrcfa.model.config import MEAN, STD
from mrcfa.training.clips import Clips, Shard, distort
from mrcfa.training.recipe import Recipe

SIZE = (96, 160)
PLAIN = Recipe(
    iterations=8,
    batch=4,
    crop=SIZE,
    ratio=(1, 1),
    flip=0,
    most_of_one_class=1,
    brightness=0,
    contrast=(1, 1),
    saturation=(1, 1),
    hue=0,
)


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips") / "vspw"
    write_vspw(folder, videos=2, frames=12, size=SIZE)
    return labelled_videos(folder, "val", reach=9)


def clips(videos, recipe=PLAIN, **changes):
    return Clips(videos, (9, 6, 3), SIZE, replace(recipe, **changes))


def pixels(frames):
    """The way back to RGB, (T, h, w, 3)."""
    return frames.permute(0, 2, 3, 1) * torch.tensor(STD) + torch.tensor(MEAN)


def test_without_distortion_a_sample_is_the_frames_and_their_truth(videos):
    frames, labels = clips(videos)[5]
    assert (frames.shape, labels.shape) == ((4, 3, 96, 160), (4, 96, 160))
    found = pixels(frames)
    assert found.min() > -0.01
    assert found.max() < 255.01
    assert (found - found.round()).abs().max() < 1e-3
    assert (labels[:, :12, :20] == IGNORED).all()
    assert (labels[:, 40:] != IGNORED).all()


def test_references_lie_before_the_target_and_never_before_the_video(videos):
    shown = clips(videos)
    for number in range(30):
        frames, labels = shown[number]
        name = shown.name_of(number)
        frame = int(name.rpartition("/")[2].partition(".")[0])
        same_as_target = [torch.equal(each, labels[-1]) for each in labels[:-1]]
        assert same_as_target == [True, True, True] or frame > 0
        assert len(frames) == 4


def test_a_sample_depends_on_seed_and_number_alone(videos):
    wild = Recipe(iterations=8, batch=4, crop=(64, 96), seed=3)
    first, again = clips(videos, wild)[7], clips(videos, wild)[7]
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], clips(videos, wild)[8][0])
    assert not torch.equal(first[0], clips(videos, wild, seed=4)[7][0])


def test_frames_smaller_than_the_crop_are_padded_with_zeros_and_no_truth(videos):
    frames, labels = clips(videos, crop=(128, 192))[0]
    assert (frames[:, :, 96:] == 0).all()
    assert (frames[:, :, :, 160:] == 0).all()
    assert (labels[:, 96:] == IGNORED).all()
    assert (labels[:, :, 160:] == IGNORED).all()


def test_geometry_is_alike_for_the_whole_clip_and_its_labels(videos):
    straight, turned = clips(videos)[2], clips(videos, flip=1)[2]
    assert torch.equal(turned[0], straight[0].flip(3))
    assert torch.equal(turned[1], straight[1].flip(2))


def test_crops_avoid_a_single_class(videos):
    crowded = clips(videos, crop=(64, 64), most_of_one_class=0.75)
    shares = []
    for number in range(30):
        _, labels = crowded[number]
        counts = np.bincount(labels[-1].numpy().ravel(), minlength=256)[:IGNORED]
        shares.append(counts.max() / counts.sum())
    assert np.mean(np.array(shares) <= 0.75) > 0.8


def test_distortion_keeps_grey_grey_and_stays_in_range():
    recipe = Recipe(brightness=0, contrast=(1, 1))
    grey = np.full((4, 4, 3), 90, np.uint8)
    wild = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    changed = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        np.testing.assert_allclose(distort(grey, recipe, random), 90, atol=1e-3)
        coloured = distort(wild, Recipe(), random)
        assert coloured.min() >= 0
        assert coloured.max() <= 255
        changed += np.abs(coloured - wild).max() > 1
    assert changed > 10


def test_processes_share_every_batch_and_a_resumed_run_goes_on(videos):
    recipe = replace(PLAIN, iterations=3, batch=4)
    halves = [list(Shard(recipe, 0, rank, 2)) for rank in range(2)]
    assert halves == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert list(Shard(recipe, 2, 0, 1)) == [8, 9, 10, 11]
    loader = DataLoader(clips(videos, recipe), batch_size=4, sampler=Shard(recipe, 1, 0, 1))
    assert [batch[0].shape for batch in loader] == [(4, 4, 3, 96, 160)] * 2
