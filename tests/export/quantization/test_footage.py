"""Frames for calibration: their sources, and data that is refused."""

import numpy as np
import pytest
from naming import naming

from mrcfa.bundle import Bundle
from mrcfa.errors import InvalidValue, MrcfaError
from mrcfa.export.quantization.footage import footage
from mrcfa.video.sample import write_sample

SIZE = (96, 160)


@pytest.fixture
def opened(bundle):
    """A bundle whose model looks two frames back."""
    return Bundle.open(bundle("b0", references=(2, 1), variants=("fp32",)))


def noise(count):
    return list(np.random.default_rng(0).integers(256, size=(count, *SIZE, 3), dtype=np.uint8))


def test_a_video_gives_stretches_from_its_start_to_its_end(opened, tmp_path, written):
    images = noise(50)
    folder = written(tmp_path / "video", images)
    shown = footage(str(folder), None, 32, opened)
    assert [len(stream) for stream in shown.streams] == [16, 16]
    assert not shown.labelled
    np.testing.assert_array_equal(shown.streams[0][0].image, images[0])
    np.testing.assert_array_equal(shown.streams[1][-1].image, images[-1])


def test_frames_have_the_size_of_the_bundle(opened, tmp_path, written):
    large = [np.repeat(np.repeat(image, 2, 0), 2, 1) for image in noise(6)]
    shown = footage(str(written(tmp_path / "video", large)), None, 6, opened)
    assert {frame.image.shape for frame in shown.streams[0]} == {(*SIZE, 3)}


@pytest.mark.parametrize(
    ("images", "frames", "things"),
    [
        (noise(6), 4, ("--frames", 4, 2, 5)),
        (noise(3), 8, ("video", 5, 2)),
        ([np.full((*SIZE, 3), 7, np.uint8)] * 8, 8, ("video", "colour")),
        (noise(1) * 8, 8, ("video", "picture")),
    ],
)
def test_too_little_to_calibrate_on_is_refused(opened, tmp_path, written, images, frames, things):
    folder = written(tmp_path / "video", images)
    with pytest.raises(InvalidValue, match=naming(*things)):
        footage(str(folder), None, frames, opened)


def test_a_dataset_of_other_classes_is_refused(opened, tmp_path):
    write_sample(tmp_path / "world", {"val": 1}, 6, SIZE)
    with pytest.raises(MrcfaError, match=naming(124, "world", 12)):
        footage(str(tmp_path / "world"), None, 6, opened)
