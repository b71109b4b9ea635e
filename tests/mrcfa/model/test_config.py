import dataclasses

import pytest

from mrcfa import preset
from mrcfa.errors import MrcfaError
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
    ("call", "says"),
    [
        (lambda: preset("vspw", "b9"), "unknown backbone 'b9'; choose one of b0, b1"),
        (lambda: preset("ade", "b1"), "unknown dataset 'ade'; choose one of vspw, cityscapes"),
        (lambda: preset("vspw", "b1", keep=0.0), "keep is 0"),
        (lambda: preset("vspw", "b1", keep=1.5), "keep is 1.5"),
        (lambda: preset("vspw", "b1", keep=float("nan")), "keep is nan"),
        (lambda: preset("vspw", "b1", size=(480, 853)), "next valid size is 480x864"),
        (lambda: preset("vspw", "b1", size=(0, -5)), "next valid size is 32x64"),
        (
            lambda: preset("vspw", "b1", size=(32, 32)),
            "one token.* next valid size is 32x64",
        ),
        (lambda: preset("vspw", "b1", scales=5), "scales is 5"),
        (lambda: preset("vspw", "b1", references=()), "farthest first"),
        (lambda: preset("vspw", "b1", references=(3, 6)), "farthest first"),
        (lambda: preset("vspw", "b1", classes=300), "2 to 255"),
        (lambda: preset("vspw", "b1", p=0.5), "no field p"),
        (lambda: preset("vspw", "b1", key_stride=0), "key_stride is 0; choose one of 32, 16, 8"),
        (lambda: preset("vspw", "b1", widths=(64,)), "are not four each"),
        (lambda: preset("vspw", "b1", affinity_channels=0), "affinity_channels is 0"),
        (lambda: preset("vspw", "b1", kernels=((3,), (4,), (3,))), "must list odd sizes"),
        (lambda: preset("vspw", "b1", kernels=((3,), (), (3,))), "must list odd sizes"),
        (lambda: preset("vspw", "b1", kernels=((3,), (3,))), "for each of 3 scales"),
    ],
)
def test_a_bad_config_is_one_sentence_with_the_remedy(call, says):
    with pytest.raises(MrcfaError, match=says):
        call()
