"""All layouts, read from small trees written here; and what is wrong with a tree, by name."""

import json

import numpy as np
import pytest
from naming import naming
from PIL import Image

from mrcfa.data.cityscapes import CITYSCAPES
from mrcfa.data.datasets import labelled_videos
from mrcfa.data.vspw import VSPW
from mrcfa.errors import Damaged, Mismatch, NotFound


def save(path, labels=((0,),)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(labels, np.uint8)).save(path)


@pytest.fixture
def vspw(tmp_path):
    for video, frames in (("b", 3), ("a", 1)):
        for t in range(frames):
            save(tmp_path / "data" / video / "origin" / f"{t:08d}.jpg")
            save(tmp_path / "data" / video / "mask" / f"{t:08d}.png", [[0, 1, 124, 255]])
    (tmp_path / "val.txt").write_text("b\na\n")
    (tmp_path / "test.txt").write_text("")
    return tmp_path


@pytest.fixture
def cityscapes(tmp_path):
    for frame in range(5, 35):
        save(
            tmp_path / f"leftImg8bit_sequence/val/ulm/ulm_000003_{frame:06d}_leftImg8bit.png",
        )
    save(tmp_path / "gtFine/val/ulm/ulm_000003_000024_gtFine_labelIds.png", [range(35)])
    return tmp_path


def test_vspw_gives_the_videos_of_a_split_in_its_order(vspw):
    videos = labelled_videos(vspw, "val", reach=9)
    assert videos.labels is VSPW.labels
    assert videos.dense
    assert [(clip.name, len(clip.images)) for clip in videos.clips] == [("b", 3), ("a", 1)]
    first = videos.clips[0]
    assert [path.name for path in first.images] == [f"{t:08d}.jpg" for t in range(3)]
    assert [first.masks[path].stem for path in first.images] == [p.stem for p in first.images]


def test_vspw_counts_classes_from_one_and_ignores_both_ends(vspw):
    videos = labelled_videos(vspw, "val", reach=9)
    mask = videos.clips[0].masks[videos.clips[0].images[0]]
    assert videos.truth(mask).tolist() == [[255, 0, 123, 255]]


def test_hidden_files_of_an_archive_are_no_frames(vspw):
    (vspw / "data" / "a" / "origin" / "._00000000.jpg").write_bytes(b"x")
    assert len(labelled_videos(vspw, "val", reach=9).clips[1].images) == 1


def test_cityscapes_gives_each_annotated_frame_with_as_many_before_it_as_matter(cityscapes):
    videos = labelled_videos(cityscapes, "val", reach=6)
    assert videos.labels is CITYSCAPES.labels
    assert not videos.dense
    (clip,) = videos.clips
    assert [path.name.split("_")[2] for path in clip.images] == [f"{t:06d}" for t in range(18, 25)]
    assert list(clip.masks) == [clip.images[-1]]


def test_frames_before_the_sequence_begins_are_not_asked_for(cityscapes):
    assert len(labelled_videos(cityscapes, "val", reach=99).clips[0].images) == 20


def test_cityscapes_label_ids_become_train_ids(cityscapes):
    videos = labelled_videos(cityscapes, "val", reach=6)
    (mask,) = videos.clips[0].masks.values()
    classes = dict(enumerate(videos.truth(mask)[0].tolist()))
    evaluated = {label: train for label, train in classes.items() if train != 255}
    # road sidewalk building wall fence pole light sign vegetation terrain sky person rider car
    # truck bus train motorcycle bicycle, as cityscapesScripts numbers them
    labels = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
    assert evaluated == dict(zip(labels, range(19), strict=True))


def test_a_missing_mask_is_named(vspw):
    (vspw / "data" / "b" / "mask" / "00000001.png").unlink()
    frame = vspw / "data/b/origin/00000001.jpg"
    with pytest.raises(NotFound, match=naming("b", "val.txt", frame)):
        labelled_videos(vspw, "val", reach=9)


def test_a_video_that_is_listed_but_not_there_is_named(vspw):
    (vspw / "val.txt").write_text("a\nghost\n")
    with pytest.raises(NotFound, match=naming("ghost", "val.txt")):
        labelled_videos(vspw, "val", reach=9)


def test_a_split_that_is_not_there_is_answered_with_those_that_are(vspw):
    with pytest.raises(NotFound, match=naming("train.txt", "test", "val")):
        labelled_videos(vspw, "train", reach=9)


def test_an_empty_split_has_no_videos(vspw):
    with pytest.raises(NotFound, match=naming("test", vspw)):
        labelled_videos(vspw, "test", reach=9)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"x"),
        lambda path: Image.new("RGB", (4, 1)).save(path),
    ],
)
def test_a_mask_that_is_none_is_named(vspw, write):
    videos = labelled_videos(vspw, "val", reach=9)
    mask = videos.clips[0].masks[videos.clips[0].images[0]]
    write(mask)
    with pytest.raises(Damaged, match=naming(mask)):
        videos.truth(mask)


def test_a_missing_cityscapes_frame_is_named(cityscapes):
    (path,) = cityscapes.glob("leftImg8bit_sequence/val/ulm/*_000024_*")
    path.unlink()
    with pytest.raises(NotFound, match=naming(path)):
        labelled_videos(cityscapes, "val", reach=6)


def test_cityscapes_without_annotation_of_a_split_says_so(cityscapes):
    with pytest.raises(NotFound, match=naming(cityscapes / "gtFine/test", "--split")):
        labelled_videos(cityscapes, "test", reach=6)


def test_a_folder_of_no_known_layout_is_told_all_of_them(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path, "vspw", "cityscapes", "labels.json")):
        labelled_videos(tmp_path, "val", reach=9)


def test_a_folder_that_is_not_there_is_told_how_to_get_one(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path / "gone", "mrcfa sample")):
        labelled_videos(tmp_path / "gone", "val", reach=9)


@pytest.fixture
def own(vspw):
    """Three classes with values of their own, one frame without a mask, PNG images."""
    (vspw / "data" / "b" / "mask" / "00000001.png").unlink()
    (vspw / "data" / "a" / "origin" / "00000000.jpg").unlink()
    save(vspw / "data" / "a" / "origin" / "00000000.png")
    content = {"names": ["road", "car", "tree"], "values": [0, 124, 1], "ignore": [255]}
    (vspw / "labels.json").write_text(json.dumps(content))
    return vspw


def test_a_labels_file_beside_the_data_makes_a_dataset_of_ones_own(own):
    videos = labelled_videos(own, "val", reach=9)
    assert videos.labels.names == ("road", "car", "tree")
    assert not videos.dense
    first, second = videos.clips
    assert (len(first.images), len(first.masks), len(second.images)) == (3, 2, 1)
    assert videos.truth(first.masks[first.images[0]]).tolist() == [[0, 2, 1, 255]]


def test_a_dataset_of_ones_own_is_dense_if_every_frame_has_a_mask(own):
    save(own / "data" / "b" / "mask" / "00000001.png", [[0, 1, 124, 255]])
    assert labelled_videos(own, "val", reach=9).dense


def test_a_value_that_the_labels_do_not_list_is_named_with_its_file(own):
    videos = labelled_videos(own, "val", reach=9)
    mask = videos.clips[0].masks[videos.clips[0].images[0]]
    save(mask, [[0, 1, 77]])
    with pytest.raises(Mismatch, match=naming(mask, 77)):
        videos.truth(mask)


def test_a_video_of_ones_own_without_any_mask_is_named(own):
    for mask in (own / "data" / "b" / "mask").iterdir():
        mask.unlink()
    with pytest.raises(NotFound, match=naming("b", "val.txt")):
        labelled_videos(own, "val", reach=9)
