"""What the doubles show of the TensorRT backend, on a real GPU."""

import gc
import threading

import numpy as np
import pytest

from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError
from mrcfa.selftest.line import Outcome
from mrcfa.selftest.selftest import passed, selftest
from mrcfa.stream import Stream

FRAMES = 12
AGREEMENT = 0.99
"""NVIDIA's gate for FP16."""


@pytest.fixture
def frames(clip):
    return clip(FRAMES, 96, 160)


def masks(stream, frames):
    return np.stack([stream(frame) for frame in frames])


def test_every_check_of_the_selftest_works(engine):
    path, _ = engine
    lines = list(selftest(Bundle.open(path)))
    assert passed(lines), "\n".join(str(line) for line in lines if line.outcome is Outcome.FAILS)


def test_masks_are_onnx_runtimes_and_graphs_change_nothing(engine, frames):
    path, backend = engine
    with Stream(path, "onnxruntime:cpu", precision="fp16") as stream:
        wanted = masks(stream, frames)
    with Stream(path, backend) as stream:
        found = masks(stream, frames)
    with Stream(path, backend, cuda_graphs=False) as stream:
        singly = masks(stream, frames)
    assert (found == wanted).mean() >= AGREEMENT
    assert (found == singly).all()


def test_streams_that_take_turns_keep_apart(engine, frames):
    path, backend = engine
    with Stream(path, backend) as first, Stream(path, backend) as second:
        alone = masks(first, frames)
        first.reset()
        pairs = [(first(frames[i]), second(frames[-1 - i])) for i in range(FRAMES)]
        backwards = np.stack([other for _, other in pairs])
        assert (np.stack([mask for mask, _ in pairs]) == alone).all()
        second.reset()
        assert (masks(second, frames[::-1]) == backwards).all()


def test_a_stream_may_be_opened_here_and_end_in_another_thread(engine, frames):
    path, backend = engine
    streams = [Stream(path, backend)]
    wanted = masks(streams[0], frames)

    def work():
        streams.pop()(frames[0])
        gc.collect()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with Stream(path, backend) as stream:
        assert (masks(stream, frames) == wanted).all()


def test_after_a_frame_that_is_refused_a_stream_goes_on(engine, frames):
    path, backend = engine
    with Stream(path, backend) as stream:
        wanted = stream(frames[0])
        with pytest.raises(MrcfaError):
            stream(frames[0].astype(np.float32))
        stream.reset()
        assert (stream(frames[0]) == wanted).all()
