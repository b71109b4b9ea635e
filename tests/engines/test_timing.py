"""Plans timed on the fake GPU, whose engines are ONNX files."""

import sys
from types import SimpleNamespace

import fake_gpu
import pytest
from naming import naming
from onnx import TensorProto, helper
from tiny_bundle import model

import mrcfa.engines.timing
from mrcfa.bundle import Unfit
from mrcfa.engines.timing import gpu_for, seconds_of
from mrcfa.machine import hardware
from mrcfa.machine.hardware import Gpu


def plan(operator):
    """Plans of different content, so that the GPU compiles both."""
    node = helper.make_node(operator, ["a"], ["b"])
    ends = ({name: (TensorProto.FLOAT16, [1, 4])} for name in "ab")
    return model([node], *ends).SerializeToString()


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU on which the second of two plans takes twice as long, and one run is disturbed."""
    driver, events = fake_gpu.Driver(), []
    record = driver.cuEventRecord

    def launched(event, stream):
        events.append(event)
        return record(event, stream)

    def elapsed(start, end):
        assert end.wait.reached
        number = events.index(end) // 2
        milliseconds = 100.0 if number == 5 else [20.0, 40.0][number % 2]
        return fake_gpu.CUresult.CUDA_SUCCESS, milliseconds

    driver.cuEventRecord, driver.cuEventElapsedTime = launched, elapsed
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(mrcfa.engines.timing, "LOAD_S", 0.0)
    trt = fake_gpu.fake_tensorrt(driver, "tensorrt_rtx", "1.7.1.116")
    return SimpleNamespace(driver=driver, trt=trt, events=events)


def test_plans_are_timed_as_cuda_graphs_in_alternating_rounds(gpu):
    seconds = seconds_of(gpu.trt, 0, [plan("Relu"), plan("Neg")], False)
    runs = mrcfa.engines.timing.RUNS
    assert seconds == pytest.approx([0.020 / runs, 0.040 / runs])
    assert len(gpu.events) == 2 * 2 * mrcfa.engines.timing.ROUNDS
    assert gpu.driver.launches == (runs * mrcfa.engines.timing.ROUNDS - 1) * 2
    assert not gpu.driver.misuses


def test_nothing_is_measured_before_the_gpu_was_under_load(gpu, monkeypatch):
    now = iter([0.0, 0.2, 0.9, 1.1])
    monkeypatch.setattr(mrcfa.engines.timing, "LOAD_S", 1.0)
    monkeypatch.setattr(mrcfa.engines.timing, "perf_counter", lambda: next(now))
    seconds_of(gpu.trt, 0, [plan("Relu")], False)
    assert len(gpu.events) == 2 * (2 + mrcfa.engines.timing.ROUNDS)


def test_a_plan_that_does_not_load_is_an_error(gpu):
    with pytest.raises(Unfit, match=naming("bad magic tag")):
        seconds_of(gpu.trt, 0, [plan("Relu"), b"no plan"], False)
    assert not gpu.driver.misuses


def test_the_gpu_of_a_target_is_the_first_of_its_compute_capabilities(monkeypatch):
    cards = [Gpu("Quadro RTX 6000", 75), Gpu("NVIDIA L4", 89), Gpu("NVIDIA L4", 89)]
    monkeypatch.setattr(hardware, "gpus", lambda: cards)
    assert gpu_for((86, 89)) == 1
    assert gpu_for((120,)) is None
