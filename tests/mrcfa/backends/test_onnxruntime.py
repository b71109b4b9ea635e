"""ONNX Runtime on CUDA, without a GPU: real sessions on the CPU that stand in for the device."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from naming import naming

import mrcfa.backends.onnxruntime
from mrcfa import Stream
from mrcfa.backends import Options, Unfit
from mrcfa.backends.onnxruntime import OnnxRuntimeBackend, open_session
from mrcfa.bundle import Bundle
from mrcfa.errors import NotFound, RuntimeFailed, Unsupported
from mrcfa.machine.hardware import Gpu


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

    def opened(graph, path, provider, threads, device, strict):
        return Session(open_session(graph, path, "cpu", threads), found)

    monkeypatch.setattr(mrcfa.backends.onnxruntime, "open_session", opened)
    monkeypatch.setattr(
        mrcfa.backends.onnxruntime.ort.OrtValue,
        "ortvalue_from_numpy",
        lambda array, device, number: place(array, "cpu"),
    )
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu("Quadro RTX 6000", 75)] * 2)
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
    with pytest.raises(Unfit, match=naming(opened.path, "GPU", "--variants fp32-gpu")):
        OnnxRuntimeBackend(opened, "cuda", Options("fp32"))
    alone = Bundle.open(bundle("b0", "cityscapes", output="logits", variants=("fp32",)))
    with pytest.raises(Unfit, match=naming(alone.path, "GPU", "--variants fp16")):
        OnnxRuntimeBackend(alone, "cuda", Options())


def test_a_cpu_runs_what_was_laid_out_for_gpus_if_asked(bundle):
    opened = Bundle.open(bundle("b0"))
    assert OnnxRuntimeBackend(opened, "cpu", Options("fp16")).name == "onnxruntime (CPU, fp16)"
    with pytest.raises(Unfit, match=naming(opened.path, "CPU", "int8", "fp16", "fp32")):
        OnnxRuntimeBackend(opened, "cpu", Options("int8"))


@pytest.fixture
def sessions(monkeypatch):
    """ONNX Runtime's GPU build with a GPU: Azure's provider, which runs no node, for CUDA's.

    Answers what sessions were asked for: providers and keywords.
    """
    ort = mrcfa.backends.onnxruntime.ort
    if "AzureExecutionProvider" not in ort.get_available_providers():
        pytest.skip("not run: this build of ONNX Runtime has no second provider")
    real, asked = ort.InferenceSession, []

    def session(path, options, providers, **more):
        asked.append((providers, more))
        (wanted, _), *_ = providers
        return real(path, options, providers=[wanted], **more)

    monkeypatch.setitem(mrcfa.backends.onnxruntime.PROVIDERS, "cuda", "AzureExecutionProvider")
    monkeypatch.setattr(ort, "InferenceSession", session)
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu("Quadro RTX 6000", 75)])
    return asked


def test_nodes_that_the_gpu_leaves_to_the_cpu_are_named(sessions, bundle, capfd):
    opened = Bundle.open(bundle("b0"))
    backend = OnnxRuntimeBackend(opened, "cuda", Options(threads=1))
    told = capfd.readouterr().err
    encoder, decoder = (line for line in told.splitlines() if line.startswith("mrcfa: "))
    assert re.search(naming("CPU", "prepare/Cast (Cast)", "encoder.fp16.onnx"), encoder)
    assert re.search(naming("CPU", "decoder.fp16.onnx"), decoder)
    assert "[E:onnxruntime" not in told
    assert backend.on_gpu
    with pytest.raises(Unfit, match=naming("CPU", "prepare/Cast (Cast)", "encoder.fp16.onnx")):
        OnnxRuntimeBackend(opened, "cuda", Options(threads=1, strict=True))


def test_cuda_computes_fp32_in_full_and_never_falls_back_by_itself(sessions, bundle):
    path = Bundle.open(bundle("b0")).file("encoder.fp16.onnx")
    open_session(path.read_bytes(), path, "cuda", 1)
    for providers, keywords in sessions:
        ((_, options),) = providers
        assert options == {"device_id": "0", "use_tf32": "0"}
        assert keywords == {"enable_fallback": 0}


def test_without_a_device_the_gpu_is_that_of_the_current_context(sessions, bundle, monkeypatch):
    monkeypatch.setattr("mrcfa.machine.hardware.current_gpu", lambda: 1)
    OnnxRuntimeBackend(Bundle.open(bundle("b0")), "cuda", Options(threads=1))
    assert {options["device_id"] for ((_, options),), _ in sessions} == {"1"}


def test_tensorrts_provider_has_cuda_behind_it(sessions, bundle, monkeypatch):
    names = mrcfa.backends.onnxruntime.PROVIDERS
    monkeypatch.setitem(names, "tensorrt", "AzureExecutionProvider")
    monkeypatch.setitem(names, "cuda", "CUDAExecutionProvider")
    path = Bundle.open(bundle("b0")).file("encoder.fp16.onnx")
    open_session(path.read_bytes(), path, "tensorrt", 1)
    (first, _), (second, options) = sessions[0][0]
    assert (first, second) == ("AzureExecutionProvider", "CUDAExecutionProvider")
    assert options["use_tf32"] == "0"


def test_cuda_behind_tensorrts_provider_does_not_pass_for_it(bundle, monkeypatch):
    ort = mrcfa.backends.onnxruntime.ort
    names = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: names)
    only_cuda = SimpleNamespace(get_providers=lambda: names[1:])
    monkeypatch.setattr(ort, "InferenceSession", lambda *_, **__: only_cuda)
    path = Bundle.open(bundle("b0")).file("encoder.fp16.onnx")
    with pytest.raises(Unfit, match=naming("TensorrtExecutionProvider", "onnxruntime:cpu")):
        open_session(path.read_bytes(), path, "tensorrt", 1)


def test_a_gpu_that_goes_away_in_mid_stream_is_one_sentence(bundle, clip, places, monkeypatch):
    backend = OnnxRuntimeBackend(Bundle.open(bundle("b0")), "cuda", Options(threads=1))
    state, frame = backend.start(), clip(1, 96, 160)[0]
    backend.step(frame, state)

    def run_with_iobinding(binding):
        raise RuntimeError("CUDA failure 719: unspecified launch failure")

    monkeypatch.setattr(backend._decoder, "run_with_iobinding", run_with_iobinding, raising=False)
    with pytest.raises(RuntimeFailed, match=naming("ONNX Runtime", "CUDA failure 719")):
        backend.step(frame, state)


def test_a_gpu_that_is_not_there_is_told(sessions, bundle):
    with pytest.raises(NotFound, match=naming("GPU 7", "GPU 0")):
        OnnxRuntimeBackend(Bundle.open(bundle("b0")), "cuda", Options(device=7))


@pytest.fixture
def broken_cuda(monkeypatch):
    """ONNX Runtime's GPU build without CUDA's libraries: it lists the provider and goes without."""
    ort = mrcfa.backends.onnxruntime.ort
    real = ort.InferenceSession

    def session(path, options, providers, **more):
        return real(path, options, providers=["CPUExecutionProvider"], **more)

    def preload_dlls():
        print("Failed to load libcublasLt.so.13: cannot open shared object file")

    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: names)
    monkeypatch.setattr(ort, "InferenceSession", session)
    monkeypatch.setattr(ort, "preload_dlls", preload_dlls)
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu("Quadro RTX 6000", 75)])


def test_cuda_that_does_not_load_falls_to_onnx_runtimes_cpu_and_is_told(
    broken_cuda, bundle, clip, capsys
):
    path = bundle("b0")
    stream = Stream(path, threads=1)
    assert stream.backend == "onnxruntime (CPU, fp32)"
    assert stream(clip(1, 96, 160)[0]).shape == (96, 160)
    out, told = capsys.readouterr()
    missing = naming("CUDAExecutionProvider", "libcublasLt.so.13")
    assert re.search(missing, told)
    assert "CPU" in told
    assert out == ""
    for backend in ("auto", "onnxruntime"):
        with pytest.raises(Unsupported, match=missing):
            Stream(path, backend, threads=1, strict=True)
    with pytest.raises(Unfit, match=missing):
        Stream(path, "onnxruntime:cuda", threads=1)
