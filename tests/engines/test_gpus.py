import pytest
from naming import naming

from mrcfa.engines.gpus import JETSONS, compute_capability, parse_sm
from mrcfa.errors import InvalidValue
from mrcfa.machine.gpu_models import COMPUTE_CAPABILITIES


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
        ("NVIDIA GeForce GTX 1660 SUPER", 75),
        ("NVIDIA T1200 Laptop GPU", 75),
        ("NVIDIA T400E", 75),
        ("Quadro T2000 with Max-Q Design", 75),
        ("NVIDIA A800 40GB Active", 80),
        ("NVIDIA A800 80GB PCIe LC", 80),
        ("NVIDIA GeForce RTX 3050 OEM", 86),
        ("NVIDIA GeForce RTX 3050Ti Laptop GPU", 86),
        ("NVIDIA RTX A4500 Embedded GPU", 86),
        ("NVIDIA RTX A4000H", 86),
        ("NVIDIA RTX 2000E Ada Generation", 89),
        ("NVIDIA RTX 5000 Ada Generation Embedded GPU", 89),
        ("NVIDIA GH200 144G HBM3e", 90),
        ("NVIDIA H20 NVL16", 90),
        ("NVIDIA H20-3e", 90),
        ("NVIDIA GeForce RTX 5090 D v2", 120),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", 120),
        ("NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU", 120),
    ],
)
def test_a_gpu_is_known_by_its_usual_names_and_by_the_drivers(name, sm):
    assert compute_capability(name) == sm


@pytest.mark.parametrize(
    ("name", "sm", "series"),
    [
        ("NVIDIA GeForce RTX 2050", 86, "GeForce RTX 2060"),
        ("NVIDIA GeForce MX570", 86, "GeForce MX550"),
        ("NVIDIA GeForce MX570 A", 86, "GeForce MX450"),
        ("NVIDIA RTX A500 Laptop GPU", 86, "RTX 500 Ada"),
        ("NVIDIA AX800", 80, "A40"),
        ("NVIDIA RTX 6000D", 120, "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 2000 Blackwell", 120, "RTX 2000 Ada"),
        ("NVIDIA GB10", 121, "GB200"),
        ("NVIDIA B300 SXM6 AC", 103, "B200"),
        ("NVIDIA Thor", 110, "Orin"),
        ("Xavier", 72, "Orin"),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", 89, "GeForce RTX 3050"),
        ("NVIDIA A30", 80, "A40"),
        ("NVIDIA T1000 8GB", 75, "RTX A1000"),
    ],
)
def test_gpus_that_are_not_of_their_series_generation_are_known(name, sm, series):
    assert compute_capability(name) == sm != compute_capability(series)


def test_no_two_gpus_are_told_apart_by_untelling_words_alone():
    found = {name: compute_capability(name) for name in COMPUTE_CAPABILITIES}
    assert found == COMPUTE_CAPABILITIES


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
    assert {sm for name, sm in COMPUTE_CAPABILITIES.items() if "Jetson" in name} == set(JETSONS)
