from dataclasses import replace

import pytest

from mrcfa.benchmarks.cost import ceilings, intensity
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Cost, Engine, PlanCost
from mrcfa.machine.gpu_models import GPU_MODELS


def test_intensity_is_operations_for_each_byte():
    gemm = Cost("encoder", "gemm", multiply_adds=50 * 10**9, bytes_moved=10**6)
    assert intensity(gemm) == pytest.approx(1e5)


def test_no_ceiling_is_below_what_unfused_graphs_could_do(bundle):
    found = ceilings(Bundle.open(bundle("b0")))
    assert [ceiling.gpu for ceiling in found] == list(GPU_MODELS)
    assert all(ceiling.unfused_fps < ceiling.fps for ceiling in found)


def test_an_engines_kernels_bound_the_gpus_it_was_built_for(bundle):
    opened = Bundle.open(bundle("b0"))
    cost = PlanCost(kernels=100, bytes_written=3 * 10**8, bytes_read=3 * 10**8)
    engine = Engine("rtx", "1.7", (75,), "fp16", "fp16", None, "", "", costs={"encoder": cost})
    built = replace(opened, manifest=replace(opened.manifest, engines=(engine,)))
    by_name = {each.gpu.name: each for each in ceilings(built)}
    launches, bytes_over_bandwidth = 100 * 2e-6, 6e8 / 320e9
    assert by_name["T4"].engine_fps == pytest.approx(1 / (launches + bytes_over_bandwidth))
    assert by_name["A10"].engine_fps is None
