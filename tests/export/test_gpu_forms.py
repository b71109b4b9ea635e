"""Forms that compilers for GPUs fuse, in float64 against what they stand for."""

import pytest
import torch
from torch.nn import functional as F

from mrcfa.export.encoder import FoldedFusion, GatheredFusion
from mrcfa.export.folds import Affine
from mrcfa.export.interpolation import Interpolation
from mrcfa.export.mask import GatheredMask
from mrcfa.export.pixels import GatheredPixels
from mrcfa.export.refinement import MapsWithMaximum
from mrcfa.export.retrieval import Retrieval, Scores
from mrcfa.export.stages import with_channels_last
from mrcfa.model.frames import FullSizeMask, Normalise, resize
from mrcfa.model.mit import MiT

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("size", [(6, 10), (12, 20), (24, 40), (5, 17), (3, 3), (1, 1)])
@pytest.mark.parametrize("align_corners", [False, True])
def test_an_interpolation_is_a_resize(size, align_corners):
    maps = torch.randn(1, 3, 6, 10)
    answer = Interpolation((6, 10), size, align_corners=align_corners)(maps)
    torch.testing.assert_close(answer, resize(maps, size, align_corners))


def test_an_interpolation_goes_through_several_sizes_in_one_step():
    maps = torch.randn(1, 3, 6, 10)
    answer = Interpolation((6, 10), (24, 40), (27, 48))(maps)
    torch.testing.assert_close(answer, resize(resize(maps, (24, 40)), (27, 48)))


@pytest.mark.parametrize("frame", [(24, 40), (27, 48), (60, 100), (10, 16)])
def test_pixels_by_gathers_are_those_by_a_resize(frame):
    image = torch.randint(0, 256, (1, *frame, 3), dtype=torch.uint8)
    answer = GatheredPixels(frame, (24, 40))(image)
    torch.testing.assert_close(answer, Normalise((24, 40))(image))


@pytest.mark.parametrize("frame", [(24, 40), (27, 48), (60, 100), (10, 16)])
@pytest.mark.parametrize("strip", [1 << 25, 1000])
def test_a_gathered_mask_is_the_argmax_of_the_whole_resize(frame, strip, monkeypatch):
    monkeypatch.setattr("mrcfa.export.mask.STRIP", strip)
    logits = torch.randn(1, 7, 6, 10)
    mask = GatheredMask(7, (6, 10), (24, 40), frame)
    assert (len(mask.rows) > 1) == (strip == 1000)
    torch.testing.assert_close(mask(logits), FullSizeMask((24, 40), frame)(logits))


def test_the_first_of_equal_classes_leads_and_no_number_is_no_class_of_its_own():
    mask = GatheredMask(7, (6, 10), (24, 40), (24, 40))
    logits = torch.zeros(1, 7, 6, 10)
    logits[:, 3:5] = 1.0
    assert mask(logits).unique().tolist() == [3]
    assert mask(logits * torch.nan).unique().tolist() == [6]


@pytest.mark.parametrize("full", [True, False])
def test_the_fusion_by_gathers_is_that_by_resizes(full):
    grids = [(24, 40), (12, 20), (6, 10), (3, 5)]
    folded = [Affine(torch.randn(8, 4), torch.randn(8)) for _ in grids]
    features = [torch.randn(1, 4, *grid) for grid in grids]
    wanted = FoldedFusion(folded, full)(features)
    for answer, each in zip(GatheredFusion(folded, full, grids)(features), wanted, strict=True):
        torch.testing.assert_close(answer, each)


def test_stages_with_channels_last_are_the_stages():
    encoder = MiT((8, 16, 40, 64), (1, 1, 1, 1)).eval()
    image = torch.randn(1, 3, 64, 96)
    wanted = encoder(image)
    for answer, stage in zip(with_channels_last(encoder).double()(image), wanted, strict=True):
        torch.testing.assert_close(answer, stage)


def test_a_softmax_that_is_divided_after_the_product_is_the_softmax():
    base, maps = torch.randn(1, 5, 6, 10), 20 * torch.rand(3, 9, 6, 10)
    values = torch.randn(3, 9, 5)
    weights = maps.softmax(dim=1)
    scores = base + torch.einsum("rsc,rshw->chw", values, weights)
    answer = Scores((12, 20))(base, [Retrieval(tokens=9)(MapsWithMaximum.of(maps), values)])
    torch.testing.assert_close(answer, F.interpolate(scores, scale_factor=2, mode="bilinear"))
