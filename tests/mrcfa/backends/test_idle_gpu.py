"""A GPU does not stay idle in silence: what was skipped is told with the reason, or raised."""

import re
import sys
from dataclasses import replace

import fake_gpu
import pytest
from fake_gpu import fake_tensorrt
from naming import naming
from PIL import Image

from mrcfa import Stream
from mrcfa.backends import Unfit
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import PLUGIN_NAME, Flavour
from mrcfa.errors import Unsupported
from mrcfa.machine.extras import MissingExtra


@pytest.fixture
def gpuless(driver):
    driver.devices = 0


def old_driver(driver, monkeypatch):
    monkeypatch.setattr(Flavour, "wheel_cuda", 13)
    driver.version = 12040


def no_cuda_python(driver, monkeypatch):
    def load(name):
        raise MissingExtra("cuda: pip install")

    monkeypatch.setattr("mrcfa.backends.cuda_context.load", load)


def broken_cuda_python(driver, monkeypatch):
    def load(name):
        raise ImportError("undefined symbol")

    monkeypatch.setattr("mrcfa.backends.cuda_context.load", load)


def other_gpu(driver, monkeypatch):
    driver.sm = 89


def null_runtime(driver, monkeypatch):
    driver.starts = False


def no_context(driver, monkeypatch):
    def create(self, how):
        self._logger.log(1, "createExecutionContext: Error Code 2: OutOfMemory (no memory)")

    monkeypatch.setattr("fake_gpu.ICudaEngine.create_execution_context", create)


SKIPPED = [
    (old_driver, Unfit, ("tensorrt-rtx", "CUDA 13", "12.4", "tensorrt-rtx-cu12")),
    (no_cuda_python, MissingExtra, ("cuda: pip install",)),
    (broken_cuda_python, Unfit, ("cuda-python", "undefined symbol")),
    (other_gpu, Unfit, ("sm_75", "Quadro RTX 6000", "sm_89", "--sm 89")),
    (null_runtime, Unfit, ("tensorrt_rtx 1.7.1.116", "API Usage Error: CUDA driver: 35", "13.0")),
    (no_context, Unfit, ("TensorRT", "OutOfMemory: no memory")),
]


@pytest.mark.parametrize(
    ("happens", "kind", "things"), SKIPPED, ids=[happens.__name__ for happens, *_ in SKIPPED]
)
def test_why_no_engine_runs_is_told_or_raised(
    happens, kind, things, double, built, monkeypatch, capsys
):
    happens(double, monkeypatch)
    path = built()
    assert Stream(path).backend == "onnxruntime (CPU, fp32)"
    told = capsys.readouterr().err
    assert re.search(naming("onnxruntime (CPU, fp32)", "TensorRT", *things), told)
    with pytest.raises(Unsupported, match=naming("onnxruntime (CPU, fp32)", path, *things)):
        Stream(path, strict=True)
    assert told.startswith("mrcfa: ")
    assert told.count("\n") == 1
    assert capsys.readouterr().err == ""
    with pytest.raises(kind, match=naming(*things)):
        Stream(path, "tensorrt")


def test_the_command_that_runs_a_video_tells_it_too(double, built, command, clip):
    double.sm = 89
    path = built()
    Image.fromarray(clip(1, 96, 160)[0]).save("frame.png")
    code, _, err = command("run", path, "frame.png", "-o", "masks")
    assert code == 0
    (told,) = (line for line in err.splitlines() if line.startswith("mrcfa: "))
    assert re.search(naming("onnxruntime (CPU, fp32)", "sm_75", "Quadro RTX 6000", "sm_89"), told)


def test_a_plugin_that_is_missing_is_told(double, built, capsys):
    path = built(plugin=PLUGIN_NAME)
    assert Stream(path).backend.startswith("onnxruntime")
    things = ("rtx fp16 sm75", PLUGIN_NAME, "--plugin-library")
    assert re.search(naming(*things), capsys.readouterr().err)


def test_a_bundle_without_engines_says_how_to_get_one(driver, bundle, capsys):
    path = bundle("b0")
    assert Stream(path).backend.startswith("onnxruntime")
    assert re.search(naming(f"mrcfa build {path}"), capsys.readouterr().err)
    with pytest.raises(Unsupported, match=naming(f"mrcfa build {path}")):
        Stream(path, strict=True)


def test_an_engine_that_runs_needs_no_words(driver, built, capsys):
    assert Stream(built(), strict=True).backend.startswith("tensorrt")
    assert capsys.readouterr().err == ""


def test_nothing_is_said_where_there_is_no_gpu(gpuless, built, bundle, capsys):
    for path in (built(), bundle("b0")):
        assert Stream(path).backend == "onnxruntime (CPU, fp32)"
        assert Stream(path, strict=True).backend == "onnxruntime (CPU, fp32)"
    assert capsys.readouterr().err == ""


def test_streams_that_share_a_backend_tell_it_once(double, built, capsys):
    double.sm = 89
    path = built()
    streams = [Stream(path) for _ in range(3)]
    assert capsys.readouterr().err.count("mrcfa:") == 1
    assert len({stream.backend for stream in streams}) == 1


def also(path, **facts):
    """One more engine, newer than those there are."""
    opened = Bundle.open(path)
    engine = replace(opened.manifest.engines[0], **facts)
    contents = {
        f"{part}.{number}": opened.file(name).read_bytes()
        for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder))
        for number in [len(opened.manifest.engines)]
    }
    encoder, decoder = contents
    opened.with_engine(replace(engine, encoder=encoder, decoder=decoder), contents)


def test_of_the_engines_that_fit_the_most_specific_runs_and_then_the_newest(double, built):
    path = built(compute_capabilities=(86,))
    double.sm = 86
    also(path, compute_capabilities=(75, 86, 89))
    assert "(rtx fp16 sm86, " in Stream(path, "tensorrt").backend
    double.sm = 89
    assert "(rtx fp16 sm75+sm86+sm89, " in Stream(path, "tensorrt").backend
    also(path, compute_capabilities=(86, 89))
    also(path, compute_capabilities=(89, 120))
    assert "(rtx fp16 sm89+sm120, " in Stream(path, "tensorrt").backend
    double.sm = 86
    assert "(rtx fp16 sm86, " in Stream(path, "tensorrt").backend


def test_an_engine_that_cannot_run_makes_room_for_the_next(double, built, monkeypatch, capsys):
    path = built(compute_capabilities=(75, 86))
    also(path, plugin=PLUGIN_NAME, compute_capabilities=(75,))
    also(path, flavour="tensorrt", tensorrt="10.3.0", compute_capabilities=(75,))
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(double, "tensorrt", "10.9.0"))
    assert "(rtx fp16 sm75+sm86, " in Stream(path, strict=True).backend
    things = ("rtx fp16 sm75+sm86", PLUGIN_NAME, "TensorRT", "10.3.0", "10.9.0")
    assert re.search(naming(*things), capsys.readouterr().err)


def test_an_engine_of_other_tensors_makes_room_for_what_can_run(double, built, bundle, capsys):
    path = built(content=Bundle.open(bundle("b0")).file("encoder.onnx").read_bytes())
    assert Stream(path).backend.startswith("onnxruntime")
    things = (path / "encoder.fp16.engine", "base", "float16 [1, 124, 12, 20]", "mrcfa build")
    assert re.search(naming(*things), capsys.readouterr().err)
    with pytest.raises(Unfit, match=naming(*things)):
        Stream(path, "tensorrt")


def test_a_gpu_that_cannot_be_used_is_skipped(double, built, monkeypatch, capsys):
    busy = fake_gpu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
    monkeypatch.setattr(double, "cuDevicePrimaryCtxRetain", lambda device: (busy, 0), raising=False)
    assert Stream(built()).backend.startswith("onnxruntime")
    assert re.search(naming("GPU 0", busy.name), capsys.readouterr().err)


def test_the_wheels_cuda_is_that_of_its_package(monkeypatch):
    pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    assert Flavour.RTX.wheel_cuda in (12, 13)
    monkeypatch.setattr(Flavour, "module", "no_such_package")
    assert Flavour.RTX.wheel_cuda is None
