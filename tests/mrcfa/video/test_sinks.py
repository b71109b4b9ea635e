"""Written files, read back by other means, and the files that remain after a write error."""

import os
import re
import resource
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from naming import naming
from PIL import Image

from mrcfa.errors import AlreadyExists, InvalidValue
from mrcfa.machine.files import CannotWrite, CutShort
from mrcfa.video.sinks import open_sink

CLASSES = ("road", "car", "sky")
PALETTE = np.array([(128, 64, 128), (0, 0, 142), (70, 130, 180)], np.uint8)


def sink(place, rate=Fraction(15)):
    return open_sink(str(place), CLASSES, PALETTE, rate)


def colours(height=96, width=160):
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2] = (230, 30, 60)
    picture[height // 2 :] = (20, 120, 200)
    return picture


def noise(seed=0):
    return np.random.default_rng(seed).integers(0, 256, (96, 160, 3), np.uint8)


def masks(frames=3, height=96, width=160):
    return np.random.default_rng(0).integers(0, 256, (frames, height, width), np.uint8)


def decoded(path, pixel_format="rgb24"):
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format=pixel_format) for frame in file.decode(video=0)]


@pytest.mark.parametrize("frames", [1, 20])
def test_a_video_is_h264_in_mp4_of_the_given_rate_and_size(tmp_path, frames):
    with sink(tmp_path / "a.mp4", Fraction(30000, 1001)) as write:
        for _ in range(frames):
            write("", colours())
    with av.open(str(tmp_path / "a.mp4")) as file:
        stream = file.streams.video[0]
        assert file.format.name.startswith("mov,mp4")
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height) == (160, 96)
        assert (stream.frames, stream.average_rate) == (frames, Fraction(30000, 1001))
    assert len(decoded(tmp_path / "a.mp4")) == frames


def test_a_video_keeps_time_where_numbered_frames_are_left_out(tmp_path):
    place = str(tmp_path / "a.mp4")
    with open_sink(place, CLASSES, PALETTE, Fraction(30), numbered=True) as write:
        for number in (7, 17, 27, 28):
            write(f"{number:06d}", colours())
    with av.open(place) as file:
        assert [round(30 * frame.time) for frame in file.decode(video=0)] == [0, 10, 20, 21]


def test_what_nothing_is_written_to_leaves_nothing_behind(tmp_path):
    for name in ("a.mp4", "a.npz", "masks"):
        with sink(tmp_path / name):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_video_shows_the_colours_it_was_given(tmp_path):
    with sink(tmp_path / "a.mp4") as write:
        write("", colours())
    shown = decoded(tmp_path / "a.mp4")[0].astype(int)
    assert np.abs(shown - colours())[:40].max() < 6
    assert np.abs(shown - colours())[56:].max() < 6


def test_an_odd_side_gets_one_more_pixel_in_a_video(tmp_path):
    with sink(tmp_path / "a.mp4") as write:
        write("", colours(97, 161))
    assert decoded(tmp_path / "a.mp4")[0].shape == (98, 162, 3)


def test_pictures_of_other_sizes_are_fitted_into_the_video(tmp_path):
    with sink(tmp_path / "a.mp4") as write:
        write("", colours())
        write("", np.full((160, 96, 3), 255, np.uint8))
    tall = decoded(tmp_path / "a.mp4")[1]
    assert tall.shape == (96, 160, 3)
    assert tall[:, 60:100].min() > 240
    assert tall[:, :45].max() < 15


def test_a_video_of_masks_is_exact(tmp_path):
    with sink(tmp_path / "a.mp4") as write:
        for mask in masks():
            write("", mask)
    np.testing.assert_array_equal(decoded(tmp_path / "a.mp4", "gray"), masks())


def test_a_folder_holds_indexed_pngs_in_the_colours_of_the_palette(tmp_path):
    mask = masks()[0] % 3
    with sink(tmp_path / "masks") as write:
        write("frame7", mask)
    assert [path.name for path in (tmp_path / "masks").iterdir()] == ["frame7.png"]
    with Image.open(tmp_path / "masks" / "frame7.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), mask)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), PALETTE[mask])


def test_a_folder_takes_coloured_pictures_of_any_size(tmp_path):
    with sink(tmp_path / "out") as write:
        write("a", colours())
        write("b", colours(33, 47))
    with Image.open(tmp_path / "out" / "b.png") as image:
        np.testing.assert_array_equal(np.asarray(image), colours(33, 47))


def test_one_picture_may_be_one_png(tmp_path):
    mask = masks()[0] % 3
    with sink(tmp_path / "a.png") as write:
        write("photo", mask)
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), mask)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), PALETTE[mask])


def test_a_folder_is_replaced_as_a_whole_with_force(tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "old.png").touch()
    with open_sink(str(tmp_path / "masks"), CLASSES, PALETTE, Fraction(1), force=True) as write:
        write("new", masks()[0])
    assert [path.name for path in (tmp_path / "masks").iterdir()] == ["new.png"]
    assert [path.name for path in tmp_path.iterdir()] == ["masks"]


def test_a_folder_with_dots_ends_with_a_slash(tmp_path):
    with sink(f"{tmp_path}/drive.v2/") as write:
        write("0", masks()[0])
    assert (tmp_path / "drive.v2" / "0.png").is_file()


def test_an_npz_holds_every_mask_under_its_name_and_the_classes(tmp_path):
    with sink(tmp_path / "a.npz") as write:
        write("000000", masks()[0])
        write("000001", masks()[1, :33, :47])
    with np.load(tmp_path / "a.npz") as saved:
        assert saved.files == ["000000", "000001", "classes", "palette"]
        np.testing.assert_array_equal(saved["000001"], masks()[1, :33, :47])
        assert tuple(saved["classes"]) == CLASSES
        np.testing.assert_array_equal(saved["palette"], PALETTE)


def test_a_video_has_the_aspect_of_its_source(tmp_path):
    place, aspects = str(tmp_path / "a.mp4"), []
    with open_sink(place, CLASSES, PALETTE, Fraction(15), aspect=lambda: aspects[-1]) as write:
        aspects.append(Fraction(16, 11))  # known from the first frame on
        write("", colours())
    with av.open(place) as file:
        assert file.streams.video[0].sample_aspect_ratio == Fraction(16, 11)


def test_players_can_start_before_they_have_the_whole_video(tmp_path):
    with sink(tmp_path / "a.mp4") as write:
        write("", colours())
    data = (tmp_path / "a.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_a_recording_of_a_live_source_plays_while_it_is_written(tmp_path):
    """So that not even a process that is killed loses more than a few seconds."""
    place = str(tmp_path / "a.mp4")
    with open_sink(place, CLASSES, PALETTE, Fraction(15), live=True) as write:
        for _ in range(150):
            write("", colours())
        (begun,) = tmp_path.iterdir()
        assert re.fullmatch(r"a\.\w+\.partial\.mp4", begun.name)
        (tmp_path / "killed.mp4").write_bytes(begun.read_bytes())
        assert 60 < len(decoded(tmp_path / "killed.mp4")) <= 150
        (tmp_path / "killed.mp4").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert len(decoded(tmp_path / "a.mp4")) == 150


KILLED = """
import os, signal, sys
from fractions import Fraction
import numpy as np
from mrcfa.video.sinks import open_sink
with open_sink(sys.argv[1], (), np.zeros((0, 3), np.uint8), Fraction(15), live=True) as write:
    for t in range(120):
        write("", np.full((96, 160, 3), t, np.uint8))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_recording_of_a_process_that_was_killed_plays(tmp_path):
    words = [sys.executable, "-c", KILLED, str(tmp_path / "a.mp4")]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": root}, check=False)
    assert done.returncode == -signal.SIGKILL
    (begun,) = tmp_path.iterdir()
    shown = [round(picture.mean()) for picture in decoded(begun)]
    assert len(shown) > 40
    assert np.abs(np.array(shown) - np.arange(len(shown))).max() <= 2


@pytest.fixture
def room():
    """`room(bytes)`: no file may become larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("live", [False, True])
def test_a_full_disk_keeps_what_was_finished_of_a_video(tmp_path, room, live):
    path = tmp_path / "a.mp4"

    def fill():
        with open_sink(str(path), CLASSES, PALETTE, Fraction(15), live=live) as write:
            room(400_000)
            for t in range(200):
                write("", noise(t))

    with pytest.raises(CutShort, match=naming(path)):
        fill()
    assert [each.name for each in tmp_path.iterdir()] == ["a.mp4"]
    assert 15 < len(decoded(path)) < 200


def test_a_full_disk_keeps_what_was_finished_of_a_folder(tmp_path, room):
    def fill():
        with sink(tmp_path / "masks") as write:
            room(20_000)
            write("0", colours())
            write("1", noise())

    with pytest.raises(CutShort, match=naming(tmp_path / "masks")):
        fill()
    assert [path.name for path in (tmp_path / "masks").iterdir()] == ["0.png"]
    with Image.open(tmp_path / "masks" / "0.png") as image:
        np.testing.assert_array_equal(np.asarray(image), colours())


@pytest.mark.parametrize("name", ["a.mp4", "masks"])
def test_a_disk_that_was_full_from_the_start_keeps_nothing(tmp_path, room, name):
    def fill():
        with sink(tmp_path / name) as write:
            room(10)
            for _ in range(60):
                write("0", noise())

    with pytest.raises(CannotWrite) as refused:
        fill()
    assert not isinstance(refused.value, CutShort)
    assert not any(tmp_path.iterdir())


def test_another_output_on_a_full_disk_keeps_its_frames_too(tmp_path, room):
    def fill():
        with sink(tmp_path / "a.mp4") as first, sink(tmp_path / "masks") as second:
            for _ in range(3):
                first("", colours())
            room(20_000)
            second("0", colours())
            second("1", noise())

    with pytest.raises(CutShort, match=naming(tmp_path / "masks")):
        fill()
    assert len(decoded(tmp_path / "a.mp4")) == 3


def test_a_closed_standard_output_is_told_before_anything_is_done(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(CannotWrite, match=naming("standard output")):
        sink("-").__enter__()


def test_standard_output_gets_bare_pixels(capfdbinary):
    with sink("-") as write:
        for mask in masks():
            write("", mask)
    assert capfdbinary.readouterr().out == masks().tobytes()


def test_a_reader_that_goes_away_ends_the_writing(monkeypatch):
    class Closed:
        def write(self, data):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=Closed(), fileno=_no_number))
    with pytest.raises(CannotWrite, match=naming("-")), sink("-") as write:
        write("", masks()[0])


def _no_number():
    raise OSError


@pytest.mark.parametrize("name", ["a.mp4", "a.npz"])
def test_a_run_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, name):
    (tmp_path / name).write_text("old")

    def fail():
        with sink(tmp_path / name) as write:
            write("0", masks()[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("name", ["a.mp4", "a.npz", "masks"])
def test_the_final_name_appears_only_when_all_is_written(tmp_path, name):
    with sink(tmp_path / name) as write:
        write("0", masks()[0])
        assert not (tmp_path / name).exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_failed_run_leaves_no_folder(tmp_path):
    def fail():
        with sink(tmp_path / "masks") as write:
            write("0", masks()[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not any(tmp_path.iterdir())


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "photo.png").write_text("mine")
    with pytest.raises(AlreadyExists, match=naming(tmp_path)):
        sink(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


@pytest.mark.parametrize("name", ["a.mp4", "a.npz", "masks"])
def test_an_output_that_cannot_be_written_is_told(tmp_path, name):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotWrite, match=naming(tmp_path / "file" / name)):
        sink(tmp_path / "file" / name).__enter__()


def test_an_existing_folder_is_no_file_name(tmp_path):
    (tmp_path / "a.mp4").mkdir()
    with pytest.raises(InvalidValue, match=naming(tmp_path / "a.mp4")):
        sink(tmp_path / "a.mp4").__enter__()


def test_other_formats_are_refused_by_name():
    with pytest.raises(InvalidValue, match=naming("a.avi", ".mp4")):
        sink(Path("a.avi")).__enter__()
