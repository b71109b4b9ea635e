import pytest

from mrcfa.machine.gpu_models import GPU_MODELS, GpuModel, known_gpu, models_of

GPU = GpuModel("a GPU", sm=86, tflops=100, gb_per_s=500)


def test_the_roofline_is_bound_by_whatever_takes_longer():
    product, norm = (50 * 10**9, 10**6), (0, 5 * 10**6)
    assert (GPU.bound(*product), GPU.bound(*norm)) == ("arithmetic", "memory")
    assert GPU.seconds(*product) == pytest.approx(1e-3)
    assert GPU.seconds(*norm) == pytest.approx(1e-5)


def test_a_target_has_the_models_of_its_compute_capabilities():
    assert {gpu.sm for gpu in models_of((86, 89))} == {86, 89}
    assert models_of((999,)) == GPU_MODELS


def test_every_gpu_that_tensorrt_rtx_builds_for_has_a_model_of_its_class():
    trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    known = [int(name[2:]) for name in trt.ComputeCapability.__members__ if name[2:].isdigit()]
    assert {gpu.sm for gpu in models_of(known)} == set(known)


@pytest.mark.parametrize(
    ("driver_name", "gpu"),
    [
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "Jetson Orin Nano"),
        ("NVIDIA Jetson AGX Orin Developer Kit", "Jetson AGX Orin"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "Jetson AGX Thor"),
    ],
)
def test_gpus_are_known_by_the_drivers_names(driver_name, gpu):
    assert known_gpu(driver_name).name == gpu


@pytest.mark.parametrize("name", ["NVIDIA A30", "NVIDIA L40S", "RTX 4090 Laptop GPU", "Orin", ""])
def test_a_similar_name_is_not_taken_for_a_known_gpu(name):
    assert known_gpu(name) is None
