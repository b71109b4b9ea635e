import pytest
from naming import naming

from mrcfa.engines.gpus import GPUS, JETSONS, compute_capability, parse_sm
from mrcfa.errors import InvalidValue


@pytest.mark.parametrize(
    ("name", "sm"),
    [
        ("quadro rtx 6000", 75),
        ("Tesla T4", 75),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", 86),
        ("RTX A4000", 86),
        ("NVIDIA RTX 6000 Ada Generation", 89),
        ("l4", 89),
        ("NVIDIA GeForce RTX 4090 24GB", 89),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120),
        ("Jetson AGX Orin Developer Kit", 87),
        ("Orin Nano", 87),
        ("NVIDIA A100-SXM4-80GB", 80),
        ("NVIDIA H100 80GB HBM3", 90),
        ("NVIDIA RTX 4000 SFF Ada Generation", 89),
        ("GeForce GTX 1650 with Max-Q Design", 75),
    ],
)
def test_a_gpu_is_known_by_its_usual_names_and_by_the_drivers(name, sm):
    assert compute_capability(name) == sm


@pytest.mark.parametrize(
    ("name", "sm", "series"),
    [
        ("NVIDIA GeForce RTX 2050", 86, "GeForce RTX 2060"),
        ("NVIDIA GeForce MX570", 86, "GeForce MX550"),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", 89, "GeForce RTX 3050"),
        ("NVIDIA A30", 80, "A40"),
        ("NVIDIA T1000 8GB", 75, "RTX A1000"),
    ],
)
def test_gpus_that_are_not_of_their_series_generation_are_known(name, sm, series):
    assert compute_capability(name) == sm != compute_capability(series)


def test_no_two_gpus_are_told_apart_by_untelling_words_alone():
    assert {name: compute_capability(name) for name in GPUS} == GPUS


def test_an_unknown_gpu_meets_the_nearest_names():
    near = ("Quadro RTX 6000", "RTX 6000 Ada", "RTX PRO 6000")
    with pytest.raises(InvalidValue, match=naming("'rtx 6000'", *near)):
        compute_capability("rtx 6000")
    with pytest.raises(InvalidValue, match=naming("'quadro rtx 600'", "Quadro RTX 6000")):
        compute_capability("quadro rtx 600")
    with pytest.raises(InvalidValue, match=naming("'voodoo'", "--sm 75")):
        compute_capability("voodoo")


def test_a_compute_capability_is_read_as_nvidia_writes_it():
    assert [parse_sm(text) for text in ("75", "7.5", "sm_75", "SM75", "12.0")] == [75] * 4 + [120]
    with pytest.raises(InvalidValue, match=naming("'turing'")):
        parse_sm("turing")


def test_every_jetson_in_the_table_has_its_advice():
    assert {sm for name, sm in GPUS.items() if "Jetson" in name} == set(JETSONS)
