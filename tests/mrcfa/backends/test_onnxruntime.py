"""ONNX Runtime on CUDA, without a GPU: real sessions on the CPU that stand in for the device."""

import numpy as np
import pytest

import mrcfa.backends.onnxruntime
from mrcfa.backends import Options, Unfit
from mrcfa.backends.onnxruntime import OnnxRuntimeBackend, open_session
from mrcfa.bundle import Bundle


class Session:
    """Takes tensors of a device, computes on the CPU, and remembers where answers were wanted."""

    def __init__(self, real, places):
        self.real, self.places = real, places

    def __getattr__(self, name):
        return getattr(self.real, name)

    def io_binding(self):
        binding = self.real.io_binding()
        bind = binding.bind_output

        def bind_output(name, device, number):
            self.places[name] = device, number
            bind(name, "cpu")

        binding.bind_output = bind_output
        return binding


@pytest.fixture
def places(monkeypatch):
    """Where the backend has put every output."""
    found = {}
    place = mrcfa.backends.onnxruntime.ort.OrtValue.ortvalue_from_numpy

    def opened(path, provider, threads, device, strict):
        return Session(open_session(path, "cpu", threads), found)

    monkeypatch.setattr(mrcfa.backends.onnxruntime, "open_session", opened)
    monkeypatch.setattr(
        mrcfa.backends.onnxruntime.ort.OrtValue,
        "ortvalue_from_numpy",
        lambda array, device, number: place(array, "cpu"),
    )
    return found


def test_on_a_gpu_features_and_state_stay_there_and_copies_are_told_apart(bundle, clip, places):
    opened, frames = Bundle.open(bundle("b0")), clip(4, 96, 160)
    gpu = OnnxRuntimeBackend(opened, "cuda", Options(threads=1, device=1))
    cpu = OnnxRuntimeBackend(opened, "cpu", Options("fp16", threads=1))
    state, wanted_state = gpu.start(), cpu.start()
    for frame in frames:
        places.clear()
        found, state, parts = gpu.timed_step(frame, state)
        assert places.keys() > {"base", "query_8", "entry", "mask", "memory_out", "frame_out"}
        assert set(places.values()) == {("cuda", 1)}
        wanted, wanted_state = cpu.step(frame, wanted_state)
        np.testing.assert_array_equal(found["mask"], wanted["mask"])
        assert list(parts) == ["upload", "encoder", "decoder", "download"]
        assert min(parts.values()) >= 0


def test_a_mask_is_the_callers_own_whatever_comes_after_it(bundle, clip):
    backend = OnnxRuntimeBackend(Bundle.open(bundle("b0")), "cpu", Options(threads=1))
    state, masks, copies = backend.start(), [], []
    for frame in clip(6, 96, 160):
        outputs, state = backend.step(frame, state)
        masks.append(outputs["mask"])
        copies.append(outputs["mask"].copy())
    np.testing.assert_array_equal(masks, copies)


def test_a_gpu_never_runs_what_was_laid_out_for_cpus(bundle, places):
    opened = Bundle.open(bundle("b0"))
    with pytest.raises(Unfit, match=r"no fp32 graphs for a GPU, only fp16, fp32; .* fp32-gpu"):
        OnnxRuntimeBackend(opened, "cuda", Options("fp32"))
    alone = Bundle.open(bundle("b0", "cityscapes", output="logits", variants=("fp32",)))
    with pytest.raises(Unfit, match=r"no graphs for a GPU, only fp32; .* --variants fp16"):
        OnnxRuntimeBackend(alone, "cuda", Options())


def test_a_cpu_runs_what_was_laid_out_for_gpus_if_asked(bundle):
    opened = Bundle.open(bundle("b0"))
    assert OnnxRuntimeBackend(opened, "cpu", Options("fp16")).name == "onnxruntime (CPU, fp16)"
    with pytest.raises(Unfit, match="no int8 graphs for a CPU, only fp16, fp32"):
        OnnxRuntimeBackend(opened, "cpu", Options("int8"))
