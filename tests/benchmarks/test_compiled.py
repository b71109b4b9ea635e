"""The peer, built by the real TensorRT-RTX, whose builder needs no GPU, and run on a fake one."""

import json
from dataclasses import replace

import pytest

from mrcfa.benchmarks.compiled import peer_costs
from mrcfa.benchmarks.result import BenchOptions, Result
from mrcfa.bundle import Bundle
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
