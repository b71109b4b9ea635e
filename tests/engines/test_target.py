import sys

import pytest
from naming import naming

from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.target import choose_target, choose_targets
from mrcfa.errors import Unsupported
from mrcfa.machine import hardware
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.hardware import Gpu


@pytest.fixture
def rtx(monkeypatch):
    """The real TensorRT-RTX, on a machine without a GPU."""
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    return pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


@pytest.fixture
def tensorrt(rtx, monkeypatch):
    """`tensorrt("10.3.0")`: that version and an RTX A4000; its part is played by TensorRT-RTX."""

    def install(version):
        monkeypatch.setattr(rtx, "__version__", version)
        monkeypatch.setitem(sys.modules, "tensorrt", rtx)
        monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA RTX A4000", 86)])

    return install


def chosen(*arguments):
    return [(target.flavour.value, target.sms) for target in choose_targets(*arguments)]


def test_without_a_gpu_it_is_rtx_for_the_sms_asked_for_or_turing_and_later_apart(rtx):
    assert chosen() == [("rtx", (75,)), ("rtx", (86, 89))]
    assert chosen(FlavourChoice.RTX) == [("rtx", (75,)), ("rtx", (86, 89))]
    assert chosen(FlavourChoice.AUTO, [89, 86, 89]) == [("rtx", (86, 89))]
    assert choose_target(FlavourChoice.RTX, [86, 89]).tag == "rtx-sm86-sm89"


def test_with_a_gpu_it_is_tensorrt_for_that_gpu(tensorrt):
    tensorrt("10.3.0.26")
    assert chosen() == [("tensorrt", (86,))]
    assert chosen(FlavourChoice.TENSORRT, [86]) == [("tensorrt", (86,))]
    assert chosen(FlavourChoice.RTX) == [("rtx", (86,))]
    built_on = {choice: choose_target(choice, [86]).gpu for choice in FlavourChoice}
    assert built_on == {"auto": "NVIDIA RTX A4000", "tensorrt": "NVIDIA RTX A4000", "rtx": None}


def test_with_a_gpu_other_sms_are_left_to_rtx(tensorrt):
    tensorrt("10.3.0.26")
    assert chosen(FlavourChoice.AUTO, [75]) == [("rtx", (75,))]
    with pytest.raises(Unsupported, match=naming("RTX A4000", "sm_86", "sm_75", "--flavour rtx")):
        choose_target(FlavourChoice.TENSORRT, [75])


def test_with_gpus_but_no_tensorrt_rtx_builds_an_engine_for_each_kind_alone(rtx, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    cards = [Gpu("NVIDIA L4", 89), Gpu("NVIDIA GeForce RTX 5090", 120), Gpu("NVIDIA L4", 89)]
    monkeypatch.setattr(hardware, "gpus", lambda: cards[:1])
    assert chosen() == [("rtx", (89,))]
    monkeypatch.setattr(hardware, "gpus", lambda: cards)
    assert chosen() == [("rtx", (89,)), ("rtx", (120,))]


def test_in_fp32_the_usual_targets_are_without_turing_which_has_none(rtx):
    assert chosen(FlavourChoice.AUTO, [], "fp32") == [("rtx", (86, 89))]


def test_a_gpu_that_rtx_does_not_know_is_told_and_not_built_past(rtx, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("Orin", 87)])
    with pytest.raises(Unsupported, match=naming("sm_87", "Jetson Orin")):
        choose_targets()


def test_a_tensorrt_that_is_too_old_is_told(tensorrt):
    tensorrt("8.5.2.2")
    with pytest.raises(Unsupported, match=naming("TensorRT 8.5.2.2", "10.3")):
        choose_targets(FlavourChoice.TENSORRT)


def test_tensorrt_without_a_gpu_is_told(tensorrt, monkeypatch):
    tensorrt("10.3.0.26")
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    with pytest.raises(Unsupported, match=naming("TensorRT", "GPU", "--flavour rtx")):
        choose_targets(FlavourChoice.TENSORRT)


@pytest.mark.parametrize(
    ("sm", "things"),
    [
        (87, ("sm_87", "Jetson Orin", "JetPack 6.1")),
        (110, ("sm_110", "Jetson Thor", "JetPack 7", "mrcfa build")),
        (72, ("sm_72", "Jetson Xavier", "TensorRT 8.5", "10.3")),
        (90, ("TensorRT-RTX", "sm_75", "sm_80", "sm_86", "sm_90", "--flavour tensorrt")),
    ],
)
def test_what_rtx_cannot_build_for_is_told_with_the_way_out(sm, things, rtx):
    with pytest.raises(Unsupported, match=naming(*things)):
        choose_target(FlavourChoice.AUTO, [sm])


def test_no_tensorrt_at_all_meets_the_install_command_of_each_flavour(monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("NVIDIA RTX A4000", 86)])
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    with pytest.raises(MissingExtra, match=naming('".[rtx]"', '".[tensorrt]"', "JetPack")):
        choose_targets()
    with pytest.raises(MissingExtra, match=naming("tensorrt_rtx", '".[rtx]"')):
        choose_targets(FlavourChoice.RTX)


def test_8_bits_are_built_for_the_gpus_that_have_them(rtx):
    assert chosen(FlavourChoice.AUTO, [], "int8") == [("rtx", (75,)), ("rtx", (86, 89))]
    assert chosen(FlavourChoice.AUTO, [], "fp8") == [("rtx", (89,))]
    with pytest.raises(Unsupported, match=naming("sm_75, sm_86", "FP8", "--sm 89")):
        choose_targets(FlavourChoice.RTX, [75, 86, 89], "fp8")


def test_a_gpu_here_without_fp8_is_told_so(tensorrt):
    tensorrt("10.3.0.26")
    with pytest.raises(Unsupported, match=naming("sm_86", "FP8", "--sm 89")):
        choose_targets(precision="fp8")
