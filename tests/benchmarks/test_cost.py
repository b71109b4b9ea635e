from dataclasses import replace

import pytest

from mrcfa.benchmarks.cost import GPUS, GpuModel, ceilings, intensity, known_gpu
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Cost, Engine, PlanCost

GPU = GpuModel("a GPU", sm=86, tflops=100, gb_per_s=500)


def test_the_roofline_is_bound_by_whatever_takes_longer():
    gemm = Cost("encoder", "gemm", multiply_adds=50 * 10**9, bytes_moved=10**6)
    norm = Cost("encoder", "norm", multiply_adds=0, bytes_moved=5 * 10**6)
    assert GPU.bound(gemm) == "arithmetic"
    assert GPU.seconds(gemm.multiply_adds, gemm.bytes_moved) == pytest.approx(1e-3)
    assert GPU.bound(norm) == "memory"
    assert GPU.seconds(norm.multiply_adds, norm.bytes_moved) == pytest.approx(1e-5)
    assert intensity(gemm) == pytest.approx(1e5)


def test_no_ceiling_is_below_what_unfused_graphs_could_do(bundle):
    found = ceilings(Bundle.open(bundle("b0")))
    assert [ceiling.gpu for ceiling in found] == list(GPUS)
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


@pytest.mark.parametrize(
    ("driver_name", "gpu"),
    [
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "Jetson Orin Nano"),
        ("NVIDIA Jetson AGX Orin Developer Kit", "Jetson AGX Orin"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "Jetson AGX Thor"),
    ],
)
def test_gpus_are_known_by_the_drivers_names(driver_name, gpu):
    assert known_gpu(driver_name).name == gpu


@pytest.mark.parametrize("name", ["NVIDIA A100", "NVIDIA L40S", "RTX 4090 Laptop GPU", "Orin", ""])
def test_a_similar_name_is_not_taken_for_a_known_gpu(name):
    assert known_gpu(name) is None
