"""Frames on the GPU: whoever writes them, and on whichever stream, is waited for."""

import sys
from types import SimpleNamespace

import pytest
from naming import naming
from on_gpu import OnGpu

from mrcfa import Stream
from mrcfa.backends.cuda import Cuda, CudaStream
from mrcfa.errors import InvalidValue

PYCUDAS = 0xABC


@pytest.fixture
def side(driver):
    """A stream of somebody else's, which does not wait for the default stream."""
    cuda = Cuda()
    with cuda.current():
        stream = CudaStream(cuda)
    return stream


def check(driver, built, image, written_on, **facts):
    path = built()
    found = Stream(path, "tensorrt")(OnGpu(image, written_on, **facts))
    driver.check(found, Stream(path, "onnxruntime:cpu", precision="fp16")(image))


@pytest.mark.parametrize("named", [1, 2], ids=["default", "per-thread"])
def test_version_3_names_the_stream_that_writes(named, driver, built, clip):
    check(driver, built, clip(1, 96, 160)[0], named, version=3, stream=named)


def test_version_3_may_name_a_side_stream(driver, side, built, clip):
    check(driver, built, clip(1, 96, 160)[0], side.address, version=3, stream=side.address)


@pytest.mark.parametrize("facts", [{"stream": None}, {}], ids=["none", "absent"])
def test_version_3_without_a_stream_may_have_a_copy_under_way(facts, driver, built, clip):
    check(driver, built, clip(1, 96, 160)[0], driver.LEGACY, version=3, **facts)


def test_version_3_must_not_name_stream_0(driver, built, clip):
    with pytest.raises(InvalidValue, match=naming("stream 0", "__cuda_array_interface__")):
        check(driver, built, clip(1, 96, 160)[0], driver.LEGACY, version=3, stream=0)


def test_version_2_names_none_so_the_default_stream_is_waited_for(driver, built, clip):
    check(driver, built, clip(1, 96, 160)[0], driver.LEGACY, version=2)


@pytest.mark.parametrize("on_side", [True, False], ids=["side", "default"])
def test_a_side_stream_of_pytorch_cannot_race(on_side, driver, side, built, clip, monkeypatch):
    """PyTorch speaks version 2, and says 0 for its default stream."""
    current = SimpleNamespace(cuda_stream=side.address if on_side else 0)

    class Tensor(OnGpu):
        device = "cuda:0"

    torch = SimpleNamespace(
        Tensor=Tensor, cuda=SimpleNamespace(current_stream=lambda device: current)
    )
    image, path = clip(1, 96, 160)[0], built()
    wanted = Stream(path, "onnxruntime:cpu", precision="fp16")(image)
    stream = Stream(path, "tensorrt")
    frame = Tensor(image, side.address if on_side else driver.LEGACY, version=2)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        found = stream(frame)
    driver.check(found, wanted)


@pytest.mark.parametrize("named", [1, 2, "side"])
def test_a_frame_may_be_written_in_another_context_of_the_gpu(named, double, built, clip):
    image, path = clip(1, 96, 160)[0], built()
    wanted = Stream(path, "onnxruntime:cpu", precision="fp16")(image)
    stream = Stream(path, "tensorrt")
    double.contexts.append(PYCUDAS)
    cuda = Cuda()
    with cuda.current():
        side = CudaStream(cuda)
    written_on = side.address if named == "side" else named
    frame = OnGpu(image, written_on, version=3, stream=written_on)
    double.contexts.clear()
    double.check(stream(frame), wanted)


def test_memory_of_a_pool_has_no_context_so_the_streams_own_is_waited_for(double, built, clip):
    image = clip(1, 96, 160)[0]
    frame, path = OnGpu(image, 1, version=3, stream=1), built()
    double.pooled.add(frame.__cuda_array_interface__["data"][0])
    wanted = Stream(path, "onnxruntime:cpu", precision="fp16")(image)
    double.check(Stream(path, "tensorrt")(frame), wanted)


def test_the_wait_is_the_gpus_and_not_the_hosts(driver, side, built, clip, monkeypatch):
    waited = []
    real = driver.cuStreamSynchronize
    monkeypatch.setattr(
        driver,
        "cuStreamSynchronize",
        lambda stream: (waited.append(int(stream)), real(stream))[1],
        raising=False,
    )
    check(driver, built, clip(1, 96, 160)[0], side.address, version=3, stream=side.address)
    assert side.address not in waited
