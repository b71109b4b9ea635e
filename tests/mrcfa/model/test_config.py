import dataclasses

import pytest
from naming import naming

from mrcfa import preset
from mrcfa.errors import InvalidValue
from mrcfa.model.schedule import references_at


def test_presets_are_the_papers_and_frozen():
    config = preset("vspw", "b1")
    assert (config.classes, config.size, config.references) == (124, (480, 864), (9, 6, 3))
    assert (config.keep, preset("vspw", "b0").keep) == (0.5, 0.8)
    assert preset("cityscapes", "b1").strides == (32, 16, 8, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.keep = 1


def test_lists_become_tuples_so_that_configs_compare():
    listed = preset("vspw", "b0", references=[9, 6, 3], size=[96, 160], kernels=[[3], [5], [5]])
    assert listed == preset("vspw", "b0", size=(96, 160), kernels=((3,), (5,), (5,)))
    assert references_at(5, listed.references) == (0, 2, 4)


@pytest.mark.parametrize(
    ("call", "things"),
    [
        (lambda: preset("vspw", "b9"), ("b9", "b0", "b5")),
        (lambda: preset("ade", "b1"), ("ade", "vspw", "cityscapes")),
        (lambda: preset("vspw", "b1", keep=0.0), ("keep", 0)),
        (lambda: preset("vspw", "b1", keep=1.5), ("keep", 1.5)),
        (lambda: preset("vspw", "b1", keep=float("nan")), ("keep", "nan")),
        (lambda: preset("vspw", "b1", size=(480, 853)), ("480x853", "480x864")),
        (lambda: preset("vspw", "b1", size=(0, -5)), ("0x-5", "32x64")),
        (lambda: preset("vspw", "b1", size=(32, 32)), ("32x32", "32x64")),
        (lambda: preset("vspw", "b1", scales=5), ("scales", 5)),
        (lambda: preset("vspw", "b1", references=()), ("references", ())),
        (lambda: preset("vspw", "b1", references=(3, 6)), ("references", (3, 6))),
        (lambda: preset("vspw", "b1", classes=300), ("classes", 300, 2, 255)),
        (lambda: preset("vspw", "b1", p=0.5), ("p", "keep")),
        (lambda: preset("vspw", "b1", key_stride=0), ("key_stride", 0, 32, 16, 8)),
        (lambda: preset("vspw", "b1", widths=(64,)), ("widths", (64,))),
        (lambda: preset("vspw", "b1", affinity_channels=0), ("affinity_channels", 0)),
        (lambda: preset("vspw", "b1", kernels=((3,), (4,), (3,))), ("kernels", ((3,), (4,), (3,)))),
        (lambda: preset("vspw", "b1", kernels=((3,), (), (3,))), ("kernels", ((3,), (), (3,)))),
        (lambda: preset("vspw", "b1", depths=(2, 2, 100_000, 2)), ("depths", 64)),
        (lambda: preset("vspw", "b1", widths=(8192,) * 4), ("widths", "250,000,000")),
        (lambda: preset("vspw", "b1", widths=(64, 127, 320, 512)), ("widths", 127)),
        (lambda: preset("vspw", "b1", affinity_channels=10**6), ("affinity_channels", 16)),
        (lambda: preset("vspw", "b1", kernels=((10_001,), (3,), (3,))), ("kernels", 31)),
        (lambda: preset("vspw", "b1", kernels=((3,) * 10_001, (3,), (3,))), ("kernels", 8)),
        (lambda: preset("vspw", "b1", references=range(10**5, 0, -1)), ("references", 16)),
        (lambda: preset("vspw", "b1", references=(10**9,)), ("references", 1000)),
        (lambda: preset("vspw", "b1", size=(32, 2**31)), ("32x2147483648", 16384)),
        (lambda: preset("vspw", "b1", kernels=((3,), (3,))), ("kernels", ((3,), (3,)), 3)),
    ],
)
def test_a_bad_config_is_one_sentence_with_the_remedy(call, things):
    with pytest.raises(InvalidValue, match=naming(*things)):
        call()
