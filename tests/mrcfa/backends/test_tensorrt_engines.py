"""Which of a bundle's engines runs, and what is told if none can."""

import sys
from dataclasses import replace

import pytest
from fake_gpu import fake_tensorrt
from naming import naming

from mrcfa import Stream
from mrcfa.backends import Unfit
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import PLUGIN, PLUGIN_NAME, PLUGIN_VARIABLE
from mrcfa.errors import Damaged, NotFound


def test_auto_prefers_an_engine_that_fits_and_falls_back_where_none_does(double, built, clip):
    path = built()
    assert Stream(path).backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000)"
    double.sm = 86
    assert Stream(path, precision="fp32").backend == "onnxruntime (CPU, fp32)"


def test_an_engine_is_chosen_by_name_flavour_or_precision_and_fp16_comes_first(double, built):
    path = built()
    opened = Bundle.open(path)
    files = {
        part: opened.file(graph.file).read_bytes()
        for part, graph in opened.manifest.variants["fp32"].graphs.items()
    }
    opened.with_engine(
        replace(
            opened.manifest.engines[0],
            precision="fp32",
            variant="fp32",
            encoder="encoder",
            decoder="decoder",
        ),
        files,
    )
    assert "fp16" in Stream(path, "tensorrt").backend
    assert "fp32" in Stream(path, "tensorrt", precision="fp32").backend
    assert "fp32" in Stream(path, "tensorrt:rtx fp32 sm75").backend
    assert "fp16" in Stream(path, "tensorrt:rtx").backend
    with pytest.raises(Unfit, match=naming("tensorrt", "rtx fp16 sm75", f"mrcfa build {path}")):
        Stream(path, "tensorrt:tensorrt")


def test_engines_of_the_other_flavour_need_the_other_module(double, built, monkeypatch):
    path = built(flavour="tensorrt", tensorrt="10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(double, "tensorrt", "10.3.0"))
    assert Stream(path, "tensorrt").backend == "tensorrt (tensorrt fp16 sm75, Quadro RTX 6000)"


def test_another_gpu_is_named_with_the_one_that_the_engine_is_for(double, built):
    double.device_name, double.sm = "NVIDIA L4", 89
    with pytest.raises(Unfit, match=naming("sm_75", "NVIDIA L4", "sm_89", "--sm 89")):
        Stream(built(), "tensorrt")


def test_another_version_is_named_with_the_one_that_built_the_engine(double, built):
    with pytest.raises(Unfit, match=naming("TensorRT-RTX", "1.6.0", "1.7.1.116")):
        Stream(built(tensorrt="1.6.0"), "tensorrt")


def test_a_version_compatible_engine_loads_within_its_major_version(double, built):
    assert Stream(built(tensorrt="1.6.0", version_compatible=True), "tensorrt").backend
    with pytest.raises(Unfit, match=naming("TensorRT-RTX", "2.0.0", "1.7.1.116")):
        Stream(built(tensorrt="2.0.0", version_compatible=True), "tensorrt")


def test_an_engine_with_a_plugin_wants_its_library(double, built, tmp_path, monkeypatch):
    path = built(plugin=PLUGIN_NAME)
    with pytest.raises(Unfit, match=naming(PLUGIN_NAME, PLUGIN_VARIABLE)):
        Stream(path, "tensorrt")
    with pytest.raises(Unfit, match=naming("rtx fp16 sm75", "nowhere.so")):
        Stream(path, "tensorrt", plugin_library="nowhere.so")
    monkeypatch.setenv(PLUGIN_VARIABLE, str(path / "manifest.json"))
    with pytest.raises(Unfit, match=naming(path / "manifest.json", PLUGIN_NAME)):
        Stream(path, "tensorrt")
    sys.modules["tensorrt_rtx"].get_plugin_registry().creators.add(PLUGIN)
    assert Stream(path, "tensorrt").backend


def test_a_truncated_engine_is_refused_before_it_reaches_the_gpu(driver, built):
    path = built()
    with (path / "decoder.fp16.engine").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(Damaged, match=naming(path / "decoder.fp16.engine")):
        Stream(path, "tensorrt")


def test_what_tensorrt_cannot_load_is_told_in_its_own_words(double, built):
    path = built(content=b"no engine")
    things = (path / "encoder.fp16.engine", "1.7.1.116", "Serialization: bad magic tag")
    with pytest.raises(Unfit, match=naming(*things)):
        Stream(path, "tensorrt")


def test_a_device_that_is_not_there_is_told(double, built):
    with pytest.raises(NotFound, match=naming("GPU 7", "GPU 0")):
        Stream(built(), "tensorrt", device=7)


def test_no_device_and_no_engine_are_told(driver, built, bundle):
    driver.devices = 0
    with pytest.raises(Unfit, match=naming("GPU", "CUDA_ERROR_NO_DEVICE")):
        Stream(built(), "tensorrt")
    driver.devices = 1
    path = bundle("b0")
    with pytest.raises(Unfit, match=naming(f"mrcfa build {path}")):
        Stream(path, "tensorrt")
