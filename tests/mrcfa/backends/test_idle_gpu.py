"""A GPU does not stay idle in silence: what was skipped is told with the reason, or raised."""

import sys
from dataclasses import replace

import pytest
from fake_gpu import fake_tensorrt
from PIL import Image

from mrcfa import Stream
from mrcfa.backends import Unfit
from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError
from mrcfa.extras import MissingExtra
from mrcfa.flavours import PLUGIN_NAME, Flavour


@pytest.fixture
def gpuless(driver):
    driver.devices = 0


def old_driver(driver, monkeypatch):
    monkeypatch.setattr(Flavour, "wheel_cuda", 13)
    driver.version = 12040


def no_cuda_python(driver, monkeypatch):
    def load(name):
        raise MissingExtra("cuda is not installed; install it with: pip")

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
    monkeypatch.setattr(
        "fake_gpu.ICudaEngine.create_execution_context", lambda self, how: None, raising=True
    )


SKIPPED = [
    (
        old_driver,
        r"tensorrt-rtx is installed for CUDA 13 and NVIDIA's driver knows CUDA up to 12\.4; update "
        "the driver, or install tensorrt-rtx-cu12 instead",
    ),
    (no_cuda_python, "cuda is not installed; install it with"),
    (broken_cuda_python, "cuda-python is installed but does not load: undefined symbol"),
    (other_gpu, r"was built for sm_75 and Quadro RTX 6000 is sm_89; .* --sm 89"),
    (
        null_runtime,
        r"tensorrt_rtx 1\.7\.1\.116 does not start: API Usage Error: CUDA driver: 35; NVIDIA's "
        r"driver knows CUDA up to 13\.0, which may be too old",
    ),
    (no_context, "TensorRT cannot prepare the engine"),
]


@pytest.mark.parametrize(("happens", "reason"), SKIPPED, ids=[each.__name__ for each, _ in SKIPPED])
def test_why_no_engine_runs_is_told_or_raised(happens, reason, double, built, monkeypatch, capsys):
    happens(double, monkeypatch)
    path = built()
    assert Stream(path).backend == "onnxruntime (CPU, fp32)"
    told = capsys.readouterr().err
    assert told.startswith("mrcfa: onnxruntime (CPU, fp32) runs instead of TensorRT: ")
    with pytest.raises(MrcfaError, match=reason) as raised:
        Stream(path, strict=True)
    assert str(raised.value).partition(" here: ")[2] in told
    assert told.count("\n") == 1
    assert capsys.readouterr().err == ""
    with pytest.raises((Unfit, MissingExtra), match=reason):
        Stream(path, "tensorrt")


def test_the_command_that_runs_a_video_tells_it_too(double, built, command, clip):
    double.sm = 89
    path = built()
    Image.fromarray(clip(1, 96, 160)[0]).save("frame.png")
    code, _, err = command("run", path, "frame.png", "-o", "masks")
    assert code == 0
    assert "mrcfa: onnxruntime (CPU, fp32) runs instead of TensorRT: the engine" in err
    assert "was built for sm_75 and Quadro RTX 6000 is sm_89" in err


def test_a_plugin_that_is_missing_is_told(driver, built, capsys):
    path = built(plugin=PLUGIN_NAME)
    assert Stream(path).backend.startswith("onnxruntime")
    assert "needs a plugin: the plugin mrcfa::SelectTokens 1 is not" in capsys.readouterr().err


def test_a_bundle_without_engines_says_how_to_get_one(driver, bundle, capsys):
    path = bundle("b0")
    assert Stream(path).backend.startswith("onnxruntime")
    assert f"has no engine yet; build one with: mrcfa build {path}" in capsys.readouterr().err
    with pytest.raises(MrcfaError, match="has no engine yet"):
        Stream(path, strict=True)


def test_an_engine_that_runs_needs_no_words(driver, built, capsys):
    assert Stream(built(), strict=True).backend.startswith("tensorrt")
    assert capsys.readouterr().err == ""


def test_nothing_is_said_where_there_is_no_gpu(gpuless, built, bundle, capsys):
    for path in (built(), bundle("b0")):
        assert Stream(path).backend == "onnxruntime (CPU, fp32)"
        assert Stream(path, strict=True).backend == "onnxruntime (CPU, fp32)"
    assert capsys.readouterr().err == ""


def test_streams_that_share_a_backend_tell_it_once(driver, built, capsys):
    driver.sm = 89
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


def test_of_the_engines_that_fit_the_most_specific_runs_and_then_the_newest(driver, built):
    path = built(compute_capabilities=(86,))
    driver.sm = 86
    also(path, compute_capabilities=(75, 86, 89))
    assert "(rtx fp16 sm86, " in Stream(path, "tensorrt").backend
    driver.sm = 89
    assert "(rtx fp16 sm75+sm86+sm89, " in Stream(path, "tensorrt").backend
    also(path, compute_capabilities=(86, 89))
    also(path, compute_capabilities=(89, 120))
    assert "(rtx fp16 sm89+sm120, " in Stream(path, "tensorrt").backend
    driver.sm = 86
    assert "(rtx fp16 sm86, " in Stream(path, "tensorrt").backend


def test_an_engine_that_cannot_run_makes_room_for_the_next(double, built, monkeypatch, capsys):
    path = built(compute_capabilities=(75, 86))
    also(path, plugin=PLUGIN_NAME, compute_capabilities=(75,))
    also(path, flavour="tensorrt", tensorrt="10.3.0", compute_capabilities=(75,))
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(double, "tensorrt", "10.9.0"))
    assert "(rtx fp16 sm75+sm86, " in Stream(path).backend
    assert capsys.readouterr().err == ""


def test_the_wheels_cuda_is_that_of_its_package(monkeypatch):
    pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    assert Flavour.RTX.wheel_cuda in (12, 13)
    monkeypatch.setattr(Flavour, "module", "no_such_package")
    assert Flavour.RTX.wheel_cuda is None
