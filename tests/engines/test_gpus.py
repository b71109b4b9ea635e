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
    ],
)
def test_a_gpu_is_known_by_its_usual_names_and_by_the_drivers(name, sm):
    assert compute_capability(name) == sm


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
