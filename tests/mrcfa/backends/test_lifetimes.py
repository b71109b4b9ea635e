"""TensorRT's objects end in their CUDA context, and before it; `driver` fails a test otherwise."""

import gc
import subprocess
import sys
import threading
from pathlib import Path

import fake_cuda
import numpy as np
import pytest
from fake_gpu import IExecutionContext
from naming import naming

import mrcfa
from mrcfa import Stream
from mrcfa.backends import Unfit
from mrcfa.backends.cuda import CudaError
from mrcfa.errors import InvalidValue, RuntimeFailed, WrongState

PYCUDAS = 0xABC


def test_the_last_reference_may_fall_where_no_context_is_current(driver, built, clip):
    stream = Stream(built(), "tensorrt")
    stream(clip(1, 96, 160)[0])
    assert driver.contexts == []
    del stream
    gc.collect()
    assert not driver.executions
    assert not driver.memory


def test_the_last_reference_may_fall_in_another_thread(driver, built, clip):
    driver.contexts.append(PYCUDAS)
    held = [Stream(built(), "tensorrt")]
    held[0](clip(1, 96, 160)[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert not driver.executions
    assert driver.misuses == []
    driver.contexts.clear()


def test_the_last_reference_may_fall_where_another_context_is_current(driver, built):
    driver.contexts.append(PYCUDAS)
    stream = Stream(built(), "tensorrt")
    driver.contexts.append(0xDEF)
    stream.close()
    assert not driver.executions
    assert driver.contexts == [PYCUDAS, 0xDEF]


def test_with_closes_a_stream_before_pycudas_context_goes(driver, built, clip):
    driver.contexts.append(PYCUDAS)
    with Stream(built(), "tensorrt", device_masks=True) as stream:
        mask = stream(clip(1, 96, 160)[0])
    assert not driver.executions
    driver.destroy_context(PYCUDAS)
    del mask  # its memory went with the context: nothing is freed twice


def test_a_context_that_went_first_takes_no_process_with_it(driver, built, clip):
    driver.contexts.append(PYCUDAS)
    stream = Stream(built(), "tensorrt")
    driver.destroy_context(PYCUDAS)
    with pytest.raises(WrongState, match=naming("CUDA context", "with Stream(...)")):
        stream(clip(1, 96, 160)[0])
    stream.close()
    gc.collect()


def test_what_was_made_before_an_error_ends_in_its_context_too(driver, built, clip, monkeypatch):
    path, (frame,) = built(), clip(1, 96, 160)
    stream = Stream(path, "tensorrt")
    full = fake_cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr(driver, "cuMemHostAlloc", lambda nbytes, flags: (full, 0), raising=False)
    with pytest.raises(CudaError, match=naming("cuMemHostAlloc")) as submitted:
        stream.submit(frame)
    with pytest.raises(CudaError, match=naming("cuMemHostAlloc")) as opened:
        Stream(path, "tensorrt", cuda_graphs=False)
    stream.close()
    assert driver.executions  # the tracebacks hold them yet
    del submitted, opened
    gc.collect()
    assert not driver.executions
    assert not driver.memory


def test_an_engine_that_does_not_load_leaves_no_runtime_behind(driver, built):
    path = built(content=b"no engine")
    with pytest.raises(Unfit, match=naming(path / "encoder.fp16.engine")):
        Stream(path, "tensorrt")


EXIT = """
import atexit, sys
sys.path.insert(0, {doubles!r})
from fake_gpu import Driver, fake_tensorrt
import weakref
weakref.finalize(Driver, int)  # some library did so first: weakref's own handler runs at the end
driver = Driver()
atexit.register(lambda: print(len(driver.executions), "contexts at the end"))
sys.modules["cuda.bindings.driver"] = driver
sys.modules["tensorrt_rtx"] = fake_tensorrt(driver, "tensorrt_rtx", {version!r})
if {pycuda}:  # pycuda.autoinit
    driver.contexts.append(0xABC)
    atexit.register(driver.destroy_context, 0xABC)
import numpy as np
from mrcfa import Stream
stream = Stream({path!r}, "tensorrt")
stream(np.zeros((96, 160, 3), np.uint8))
atexit.register(lambda: print(len(driver.executions), "contexts at the exit"))
"""


@pytest.mark.parametrize("pycuda", [False, True], ids=["primary", "pycuda"])
def test_at_the_interpreters_exit_contexts_end_before_pycuda_ends_its_own(
    pycuda, double, built, tmp_path
):
    code = EXIT.format(
        doubles=str(Path(fake_cuda.__file__).parent),
        version="1.7.1.116",
        pycuda=pycuda,
        path=str(built()),
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={
            "PYTHONPATH": str(Path(mrcfa.__file__).parents[1]),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "misuse" not in ended.stderr
    assert ended.stdout == "3 contexts at the exit\n0 contexts at the end\n"


def test_a_gpu_that_goes_away_in_mid_stream_is_told_and_serves_no_other_stream(
    driver, built, clip, monkeypatch
):
    path, frames = built(), clip(3, 96, 160)
    stream = Stream(path, "tensorrt")
    stream(frames[0])
    driver.fault = fake_cuda.CUresult.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(RuntimeFailed, match=naming("GPU", "CUDA_ERROR_LAUNCH_FAILED", "dmesg")):
        stream(frames[1])
    driver.fault = None  # another GPU, say
    other = Stream(path, "tensorrt")
    assert other._backend is not stream._backend
    other(frames[0])
    stream.close()


@pytest.mark.parametrize(
    ("code", "things", "gone"),
    [
        ("OUT_OF_MEMORY", ("nvidia-smi",), False),
        ("INVALID_VALUE", ("cuEventSynchronize",), False),
        ("ILLEGAL_ADDRESS", ("dmesg",), True),
    ],
)
def test_an_error_of_cuda_says_what_it_means(code, things, gone, double, built, clip):
    stream, frame = Stream(built(), "tensorrt"), clip(1, 96, 160)[0]
    fault = fake_cuda.CUresult[f"CUDA_ERROR_{code}"]
    double.fault = fault
    with pytest.raises(CudaError, match=naming(fault.name, *things)) as raised:
        stream(frame)
    assert ("stopped working" in str(raised.value)) is gone
    double.fault = None
    assert stream._backend.usable() is not gone


def test_a_stream_that_failed_gives_its_lane_to_nobody(double, built, clip, monkeypatch):
    path, frames = built(), clip(4, 96, 160)
    stream, other = Stream(path, "tensorrt"), Stream(path, "tensorrt")
    taken = double.device_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(IExecutionContext, "execute_async_v3", lambda self, stream_handle: False)
        with pytest.raises(RuntimeFailed, match=naming("TensorRT", "engine")):
            stream(frames[0])
    stream.close()
    assert double.device_bytes() == taken // 2
    alone = Stream(path, "onnxruntime:cpu", precision="fp16")
    np.testing.assert_array_equal(other(frames[0]), alone(frames[0]))


def test_a_stream_may_end_in_another_thread_and_the_next_is_as_good(driver, built, clip):
    path, frames = built(), clip(3, 96, 160)
    streams = [Stream(path, "tensorrt")]
    wanted = [streams[0](frame) for frame in frames]
    thread = threading.Thread(target=lambda: streams.pop()(frames[0]))
    thread.start()
    thread.join()
    gc.collect()
    assert not driver.memory
    with Stream(path, "tensorrt") as stream:
        driver.check([stream(frame) for frame in frames], wanted)


def test_after_a_frame_that_is_refused_a_stream_goes_on(driver, built, clip):
    with Stream(built(), "tensorrt") as stream:
        frame = clip(1, 96, 160)[0]
        wanted = stream(frame)
        with pytest.raises(InvalidValue, match=naming("float32")):
            stream(frame.astype(np.float32))
        stream.reset()
        driver.check(stream(frame), wanted)


def test_a_closed_stream_says_so(driver, built, clip):
    with Stream(built(), "tensorrt") as stream:
        pass
    with pytest.raises(WrongState, match=naming("closed")):
        stream(clip(1, 96, 160)[0])
