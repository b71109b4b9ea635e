"""Names of outputs: derived from the inputs, and never twice the same."""

from pathlib import Path

import pytest

from mrcfa.errors import MrcfaError
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
    with pytest.raises(MrcfaError, match=r"a\.mp4 is the input; name another output with -o"):
        places_for(sources, str(tmp_path))


@pytest.mark.parametrize("out", ["-", "a.mp4", "a.npz"])
def test_several_inputs_need_a_folder(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MrcfaError, match=r"2 inputs cannot share .*; name a folder with -o"):
        places_for(["0", "1"], out)
    Path("file").touch()
    with pytest.raises(MrcfaError, match="file is no folder; name one with -o, for 2 inputs"):
        places_for(["0", "1"], "file")
