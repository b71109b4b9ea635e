"""The peer, built by the real TensorRT-RTX, whose builder needs no GPU, and run on a fake one."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import fake_gpu
import numpy as np
import onnx
import pytest
from naming import naming
from onnx import TensorProto, helper

import mrcfa.benchmarks.compiled
from mrcfa.benchmarks.compiled import CompiledPeer, peer_costs
from mrcfa.benchmarks.contenders import Role, contenders
from mrcfa.benchmarks.result import BenchOptions, Result
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Engine, PlanCost

pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


def with_engines(bundle, *engines):
    return replace(bundle, manifest=replace(bundle.manifest, engines=engines))


def engine(*sms, **changes):
    made = Engine("rtx", "1.7", sms, "fp16", "fp16", None, "", "")
    return replace(made, costs={"encoder": PlanCost(2, 300, 400, 500)}, **changes)


@pytest.mark.thorough
def test_the_peer_is_compiled_for_the_gpus_of_an_engine_and_reported_beside_it(bundle, peer_cache):
    opened = with_engines(Bundle.open(bundle("b0")), engine(86))
    costs = peer_costs(opened)
    assert costs.keys() == {"rtx fp16 sm86"}
    peer = costs["rtx fp16 sm86"]
    assert peer.kernels > 50
    assert peer.bytes_written > 96 * 160 * 124  # it writes full-size logits
    assert peer.activation_bytes > 0
    result = Result(opened, BenchOptions(), (), {}, {}, {}, "", costs)
    lines = [json.loads(line) for line in result.to_json_lines().splitlines()]
    found = {line["part"]: line["bytes_written"] for line in lines if line["kind"] == "engine"}
    assert found == {"encoder": 300, "peer": peer.bytes_written}


def test_engines_that_do_not_list_their_kernels_have_no_peer(bundle):
    opened = Bundle.open(bundle("b0"))
    assert peer_costs(opened) == {}
    unlisted = replace(engine(86), costs={})
    assert peer_costs(with_engines(opened, unlisted, engine(86, flavour="tensorrt"))) == {}


class Builder:
    """TensorRT's builder on the fake GPU, whose plans are ONNX files."""

    built = 0
    capabilities = ()

    def __init__(self, logger):
        pass

    def create_builder_config(self):
        def note(capability, index):
            Builder.capabilities = (*Builder.capabilities, capability)

        return SimpleNamespace(set_flag=lambda flag: None, set_compute_capability=note)

    def create_network(self, flags):
        return SimpleNamespace()

    def build_serialized_network(self, network, config):
        Builder.built += 1
        return network.content


class OnnxParser:
    def __init__(self, network, logger):
        self.network = network

    def parse(self, content):
        self.network.content = content
        return True


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A fake Quadro RTX 6000 on which both flavours are installed, and a peer that inverts red."""
    driver = fake_gpu.Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    for flavour in Flavour:
        trt = fake_gpu.fake_tensorrt(driver, flavour.module, "1.7.1.116")
        trt.Builder, trt.OnnxParser = Builder, OnnxParser
        trt.BuilderFlag = SimpleNamespace(REQUIRE_USER_ALLOCATION=1)
        trt.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
        trt.ComputeCapability = SimpleNamespace(SM75=75)
        monkeypatch.setitem(sys.modules, flavour.module, trt)
    monkeypatch.setattr(Builder, "built", 0)
    monkeypatch.setattr(Builder, "capabilities", ())
    red = helper.make_node("Gather", ["image", "zero"], ["red"], axis=3)
    zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
    graph = helper.make_graph(
        [red, helper.make_node("BitwiseNot", ["red"], ["mask"])],
        "peer",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, [1, 96, 160, 3])],
        [helper.make_tensor_value_info("mask", TensorProto.UINT8, [1, 96, 160])],
        [zero],
    )
    opset = [helper.make_opsetid("", 18)]
    path = tmp_path / "segformer-b0.fp16.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    monkeypatch.setattr(mrcfa.benchmarks.compiled, "written_peer", lambda *_: path)
    return driver


@pytest.mark.parametrize("flavour", Flavour)
def test_the_peer_runs_as_an_engine_like_ours(flavour, bundle, gpu, clip):
    peer = CompiledPeer(Bundle.open(bundle("b0")), flavour)
    state = peer.start()
    frames = clip(4, 96, 160)
    masks = [peer.step(frame, state)[0]["mask"] for frame in frames]
    for frame, mask in zip(frames, masks, strict=True):
        np.testing.assert_array_equal(mask, ~frame[:, :, 0])
    assert gpu.launches == 3  # all but the first are a CUDA graph
    assert Builder.capabilities == ((75,) if flavour is Flavour.RTX else ())
    assert not gpu.misuses


def test_the_peers_engine_is_built_once_for_a_gpu_and_a_version(bundle, gpu):
    opened = Bundle.open(bundle("b0"))
    for _ in range(2):
        CompiledPeer(opened, Flavour.RTX)
    assert Builder.built == 1
    gpu.device_name = "Tesla T4"
    CompiledPeer(opened, Flavour.RTX)
    assert Builder.built == 2


def test_each_flavour_of_our_engines_has_a_peer_of_the_same(bundle):
    classic = replace(engine(75), flavour="tensorrt")
    opened = with_engines(Bundle.open(bundle("b0")), engine(75), engine(86), classic)
    rows = contenders(opened, ["tensorrt"], threads=1)
    peers = {row.name: row for row in rows if row.role is Role.PEER}
    assert peers.keys() == {
        "segformer-b0 onnxruntime:cpu fp32",
        "segformer-b0 onnxruntime:cuda fp16",
        "segformer-b0 rtx fp16",
        "segformer-b0 tensorrt fp16",
    }
    with pytest.raises(Unfit, match=naming("CUDA")):
        peers["segformer-b0 rtx fp16"].open()
