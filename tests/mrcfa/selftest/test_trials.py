"""`mrcfa doctor` tries: what works, what is there and does not, and what to do about it."""

import re
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from naming import naming

from mrcfa.backends.one_node import FP16_NODE, ONE_NODE
from mrcfa.machine import drivers
from mrcfa.machine.drivers import CudaNeed, cuda_needs
from mrcfa.selftest import trials
from mrcfa.selftest.findings import Finding
from mrcfa.selftest.trials import tried

ROOT = Path(__file__).parents[3]


def finding(name, found="1.0"):
    return Finding(name, found, "something", "the remedy")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """`stand_in("tensorrt_rtx", code)`: what processes that are started import by that name."""

    def write(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    return write


@pytest.mark.parametrize(
    ("content", "kind"),
    [(ONE_NODE, onnx.TensorProto.FLOAT), (FP16_NODE, onnx.TensorProto.FLOAT16)],
    ids=["fp32", "fp16"],
)
def test_the_one_node_model_adds_a_vector_to_itself(content, kind):
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    (node,) = model.graph.node
    assert (node.op_type, *node.input) == ("Add", "x", "x")
    ends = (*model.graph.input, *model.graph.output)
    assert {end.type.tensor_type.elem_type for end in ends} == {kind}


def test_a_session_runs_on_the_providers_that_are_there_and_others_are_missing():
    found = {each.name: each for each in tried([finding("onnxruntime")])}
    assert found["ort:cpu"].works is True
    assert found["ort:cuda"].found is None
    assert re.search(
        naming("pip uninstall -y onnxruntime", "pip install"), found["ort:cuda"].remedy
    )


def test_a_provider_that_onnx_runtime_leaves_out_in_silence_is_found(stand_in):
    stand_in(
        "onnxruntime",
        "class SessionOptions: pass\n"
        "class InferenceSession:\n"
        "    def __init__(self, *_, providers): pass\n"
        "    def get_providers(self): return ['CPUExecutionProvider']\n"
        "    def run(self, names, inputs): return [inputs['x'] * 2]\n"
        "def get_available_providers():\n"
        "    return ['CUDAExecutionProvider', 'CPUExecutionProvider']\n",
    )
    found = {each.name: each for each in tried([finding("onnxruntime")])}
    assert found["ort:cpu"].works is True
    assert found["ort:cuda"].works is False
    assert re.search(naming("ONNX Runtime", "CPU"), found["ort:cuda"].said)


def test_a_runtime_that_crashes_or_does_not_start_does_not_take_doctor_down(stand_in, command):
    stand_in("tensorrt_rtx", "import os; os.abort()")
    code, out, _ = command("doctor")
    assert code == 0
    (line,) = (line for line in out.decode().splitlines() if "tensorrt_rtx" in line)
    assert line.startswith("✗ tensorrt_rtx")
    assert "SIGABRT" in line
    assert 'pip install ".[rtx]"' in line
    assert "✓ ort:cpu" in out.decode()
    stand_in(
        "tensorrt",
        "class ILogger:\n    def __init__(self): pass\n"
        "class Runtime:\n    def __init__(self, logger):\n"
        "        logger.log(1, 'CUDA initialization failure with error: 35')\n"
        "        raise TypeError('factory function returned nullptr')\n",
    )
    (tensorrt,) = tried([finding("tensorrt")])
    assert tensorrt.works is False
    assert "CUDA initialization failure with error: 35" in tensorrt.said


def test_packages_that_want_a_newer_driver_are_told_where_there_is_one(monkeypatch):
    needs = [CudaNeed("tensorrt-rtx-cu13 1.7.1", "13.0", "update the driver")]
    monkeypatch.setattr(trials, "cuda_needs", lambda: needs)
    monkeypatch.setattr(trials, "TRIALS", {})
    _, unmet = tried([finding("CUDA driver", "12.4")])
    assert (unmet.name, unmet.works) == ("tensorrt-rtx-cu13", False)
    assert re.search(naming("13.0", "12.4"), unmet.said)
    assert len(tried([finding("CUDA driver", "13.1")])) == 1
    assert len(tried([finding("CUDA driver", None)])) == 1


def test_what_packages_need_is_read_from_their_names(monkeypatch):
    installed = {"tensorrt_rtx_cu13": "1.7.1", "tensorrt-cu12": "10.9", "cuda-bindings": "13.4.4"}
    distributions = [
        SimpleNamespace(metadata={"Name": name}, version=version)
        for name, version in [*installed.items(), ("tensorrt_rtx_cu13_libs", "1.7.1")]
    ]
    monkeypatch.setattr(drivers.metadata, "distributions", lambda: distributions)
    needs = {need.package: need for need in cuda_needs()}
    assert {package: need.cuda for package, need in needs.items()} == {
        "cuda-bindings 13.4.4": "12.8",
        "tensorrt-cu12 10.9": "12.0",
        "tensorrt-rtx-cu13 1.7.1": "13.0",
    }
    remedy = needs["tensorrt-rtx-cu13 1.7.1"].remedy
    assert re.search(naming("driver", 580), remedy)
    assert "pip uninstall -y tensorrt_rtx tensorrt_rtx_cu13 tensorrt_rtx_cu13_bindings" in remedy
    assert 'pip install ".[rtx-cu12]"' in remedy
    assert needs["tensorrt-cu12 10.9"].met_by("12.2")
    assert not needs["cuda-bindings 13.4.4"].met_by("12.6")


def test_the_package_bounds_torch_from_below_alone_and_onnx_comes_with_every_builder():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"torch>=2.13"' in text
    for extra in ("rtx", "rtx-cu12", "tensorrt", "tensorrt-cu12"):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{extra} = "))
        assert '"onnx>=' in line
        assert '"cuda-python>=12.9.1' in line
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
