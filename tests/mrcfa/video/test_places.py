"""Names of outputs: derived from the inputs, and never twice the same."""

from pathlib import Path

import pytest
from naming import naming

from mrcfa.errors import AlreadyExists, InvalidValue
from mrcfa.video.places import places_for


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("street.mp4", "street.mrcfa.mp4"),
        ("some/frames/", "frames.mrcfa.mp4"),
        ("some/*.png", "frames.mrcfa.mp4"),
        ("0", "camera0.mrcfa.mp4"),
        ("-", "-"),
        ("rtsp://me:secret@10.0.0.7:554/live/1?token=x", "10.0.0.7-live-1.mrcfa.mp4"),
        ("udp://@:5000", "stream.mrcfa.mp4"),
    ],
)
def test_without_an_output_the_input_gives_the_name(source, place):
    assert places_for([source], None) == [place]


def test_names_in_a_shared_folder_never_collide():
    sources = ["a/x.mp4", "b/x.mp4", "x-2.mp4", "X.mov", "0", "rtsp://h/live", "rtsp://h/live", "-"]
    assert places_for(sources, "out") == [
        "out/x.mp4",
        "out/x-3.mp4",
        "out/x-2.mp4",
        "out/X-4.mp4",
        "out/camera0.mp4",
        "out/h-live.mp4",
        "out/h-live-2.mp4",
        "out/frames.mp4",
    ]


def test_an_output_never_takes_the_place_of_any_input(tmp_path):
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).touch()
    sources = [str(tmp_path / "a.mp4"), "0", str(tmp_path / "b.mp4")]
    with pytest.raises(InvalidValue, match=naming("a.mp4", "-o")):
        places_for(sources, str(tmp_path))


@pytest.mark.parametrize("out", ["-", "a.mp4", "a.npz", "a.png"])
def test_several_inputs_need_a_folder(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=naming(out, "-o")):
        places_for(["0", "1"], out)
    Path("file").touch()
    with pytest.raises(InvalidValue, match=naming("file", "-o", 2)):
        places_for(["0", "1"], "file")


@pytest.mark.parametrize(
    ("out", "places"),
    [
        ("masks/{}.npz", ["masks/drive.v2.npz", "masks/camera0.npz"]),
        ("masks/{}", ["masks/drive.v2/", "masks/camera0/"]),
        ("{}-masks.mp4", ["drive.v2-masks.mp4", "camera0-masks.mp4"]),
    ],
)
def test_braces_stand_for_the_inputs_names(out, places):
    assert places_for(["drive.v2.mp4", "0"], out) == places
    assert places_for(["0"], out) == places[1:]


@pytest.fixture
def photo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    return "photo.jpg"


def test_an_image_becomes_an_image(photo):
    assert places_for([photo], None) == ["photo.mrcfa.png"]
    assert places_for([photo], "mask.png") == ["mask.png"]
    assert places_for([photo, "street.mp4"], "out") == ["out/photo.png", "out/street.mp4"]
    assert places_for([photo, "street.mp4"], None) == ["photo.mrcfa.png", "street.mrcfa.mp4"]


def test_what_is_no_single_image_does_not_become_one(photo):
    with pytest.raises(InvalidValue, match=naming("mask.png", "street.mp4")):
        places_for(["street.mp4"], "mask.png")


@pytest.mark.parametrize("name", ["a.mp4", "a.npz", "a.png", "masks"])
def test_what_is_there_is_replaced_with_force_alone(name, photo):
    if "." in name:
        Path(name).touch()
    else:
        Path(name).mkdir()
        Path(name, "0.png").touch()
    with pytest.raises(AlreadyExists, match=naming(name, "--force")):
        places_for([photo], name)
    assert places_for([photo], name, force=True) == [name]


def test_an_empty_folder_is_free(photo):
    Path("masks").mkdir()
    assert places_for([photo], "masks") == ["masks"]


def test_a_folder_that_holds_more_than_pngs_is_never_replaced(photo):
    Path("home").mkdir()
    Path("home/letter.txt").touch()
    with pytest.raises(AlreadyExists, match=naming("home", "letter.txt")):
        places_for([photo], "home", force=True)


@pytest.mark.parametrize("source", ["in", "in/0.png", "in/*.png", "i*/0.png"])
def test_a_folder_of_inputs_is_never_replaced(source, photo):
    Path("in").mkdir()
    Path("in/0.png").touch()
    with pytest.raises(InvalidValue, match=naming("in", "-o")):
        places_for([source], "in", force=True)
