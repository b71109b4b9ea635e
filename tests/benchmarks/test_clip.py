import av
import numpy as np
import pytest
from naming import naming

from mrcfa.benchmarks.clip import LOOP, benchmark_clip, looped
from mrcfa.bundle import Bundle
from mrcfa.errors import Damaged, InvalidValue


@pytest.fixture
def opened(bundle):
    return Bundle.open(bundle("b0"))


def film(path, frames):
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(frames):
            image = np.full((48, 64, 3), 5 * number, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode(None))
    return path


def test_frames_of_a_video_have_the_bundles_size(opened, tmp_path):
    images = benchmark_clip(opened, film(tmp_path / "street.mp4", 40), frames=35)
    assert len(images) == 35
    assert {image.shape for image in images} == {(96, 160, 3)}


def test_a_video_with_too_few_frames_is_refused(opened, tmp_path):
    with pytest.raises(InvalidValue, match=naming(tmp_path / "short.mp4", "12 frames", LOOP)):
        benchmark_clip(opened, film(tmp_path / "short.mp4", 12), frames=12)


def test_a_file_that_is_no_video_is_refused(opened, tmp_path):
    path = tmp_path / "street.mp4"
    path.write_bytes(b"not a video at all")
    with pytest.raises(Damaged, match=naming(path)):
        benchmark_clip(opened, path, frames=12)


def test_frames_10_100_and_1000_of_a_loop_have_the_same_past(opened):
    shown = list(looped(benchmark_clip(opened, None, frames=5), 1001))
    for mark in (100, 1000):
        for back in range(10):
            assert shown[mark - back] is shown[10 - back]
