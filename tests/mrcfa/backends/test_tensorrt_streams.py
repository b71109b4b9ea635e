"""Several cameras on a GPU made of host memory: rows of one lane."""

import pytest
from cameras import turmoil
from naming import naming
from on_gpu import OnGpu, read_back

from mrcfa import Stream, Streams
from mrcfa.errors import Mismatch


@pytest.fixture
def three(built, bundle, request):
    more = {"variants": ("fp32", "fp32-gpu")} if request.config.getoption("gpu") else {}
    return built(source=bundle("b0", streams=3, **more), precision="fp32")


@pytest.mark.parametrize(
    "on_gpu", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["host", "device"]
)
def test_30_rounds_of_cameras_that_come_and_go_are_lone_streams(
    on_gpu, driver, three, bundle, clip
):
    with Streams(three, "tensorrt", device_masks=on_gpu) as streams:
        happened = turmoil(
            streams,
            lambda: Stream(bundle("b0"), "onnxruntime:cpu"),
            clip(30, 96, 160),
            30,
            check=driver.check,
            **({"shown": OnGpu, "read": read_back} if on_gpu else {}),
        )
    assert min(happened.values()) > 1, happened


def test_a_frame_of_another_size_on_the_gpu_is_a_sentence_and_the_others_go_on(
    driver, three, bundle, clip
):
    frames, lone = clip(2, 96, 160), Stream(bundle("b0"), "onnxruntime:cpu")
    streams = Streams(three, "tensorrt")
    driver.check(streams({"a": frames[0]})["a"], lone(frames[0]))
    with pytest.raises(Mismatch, match=naming((96, 160, 3), (50, 70, 3), "GPU")):
        streams({"a": frames[1], "b": OnGpu(clip(1, 50, 70)[0])})
    assert streams.cameras == ("a",)
    driver.check(streams({"a": frames[1]})["a"], lone(frames[1]))


def test_a_lone_stream_may_have_all_rows_to_itself(driver, three, bundle, clip):
    frames, lone = clip(3, 96, 160), Stream(bundle("b0"), "onnxruntime:cpu")
    stream = Stream(three, "tensorrt")
    for frame in frames:
        driver.check(stream(frame), lone(frame))
