"""SAR and MAA in ONNX Runtime's blocked layout against the reference model's blocks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mrcfa.export.ort_cpu.refinement import Maps, SplitMAA, layers, new_sar
from mrcfa.export.refinement import Affinity, Queries, steps_of
from mrcfa.model.affinity import Refinement

pytestmark = pytest.mark.usefixtures("float64")

TOKENS, GRID = 16, (6, 10)


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)


def refinement(inputs, outputs, scales=None):
    block = Refinement(inputs, outputs, [3] * len(outputs))
    for norm in list(block)[1::3]:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        if scales is not None and len(norm.weight) == len(scales):
            norm.weight.data = torch.tensor(scales)
    return block


def over_tokens(block, grid=GRID):
    return nn.Sequential(*layers(steps_of(block), TOKENS, grid)).double()


def maps_of(tensor, deviation=None):
    """(S, C, h, w), as the reference has them -> C tensors (1, S, h, w)."""
    wider = tensor if deviation is None else tensor * deviation.view(-1, 1, 1, 1)
    return Maps([channel[None] for channel in wider.unbind(1)], deviation)


def tensor_of(maps):
    """The way back."""
    return torch.cat(list(maps.divided())).transpose(0, 1)


@pytest.mark.parametrize("outputs", [(1,), (2,), (3,), (1, 2), (2, 2), (2, 1)])
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_block_computes_what_the_reference_does(inputs, outputs):
    block = refinement(inputs, outputs)
    maps = torch.randn(TOKENS, inputs, *GRID)
    close(tensor_of(over_tokens(block)(maps_of(maps))), block(maps))


@pytest.mark.parametrize("outputs", [(1,), (2,), (2, 2, 1)])
def test_what_the_maps_are_still_to_be_divided_by_does_not_matter(outputs):
    block = refinement(2, outputs)
    maps, deviation = torch.randn(TOKENS, 2, *GRID), torch.rand(1, TOKENS) * 9 + 0.1
    answer = over_tokens(block)(maps_of(maps, deviation))
    close(tensor_of(answer), block(maps))


@pytest.mark.parametrize("scales", [[0.0, 1.0], [-2.0, 0.0], [0.0, 0.0], [1e-12, -3.0]])
def test_a_norm_may_scale_by_nothing_or_turn_the_sign(scales):
    block = refinement(1, (2,), scales)
    maps = torch.randn(TOKENS, 1, *GRID)
    answer = tensor_of(over_tokens(block)(maps_of(maps)))
    torch.testing.assert_close(answer, block(maps), rtol=1e-6, atol=1e-7)


def test_maps_without_contrast_stay_finite_and_right():
    block = refinement(1, (2,))
    maps = torch.zeros(TOKENS, 1, *GRID)
    close(tensor_of(over_tokens(block)(maps_of(maps))), block(maps))


def test_rounding_makes_no_variance_negative():
    block = refinement(1, (2,)).float()
    nn.init.zeros_(block[0].bias)
    block[0].weight.data.zero_()[:, :, 1, 1] = 1
    maps = torch.linspace(100, 1000, TOKENS).float().view(-1, 1, 1, 1).expand(-1, 1, *GRID)
    answer = over_tokens(block).float()(maps_of(maps))
    expected = block.double()(maps.double())
    torch.testing.assert_close(tensor_of(answer).double(), expected, rtol=0, atol=1e-2)


@pytest.mark.parametrize("refined", [(True, True), (True, False), (False, True), (False, False)])
def test_aggregation_adds_maps_that_owe_different_divisions(refined):
    """Both refined, which leaves a division to be done, or either as it is."""
    block = refinement(2, (2, 1))
    small, large = torch.randn(TOKENS, 2, 3, 5), torch.randn(TOKENS, 2, *GRID)
    expected, given = [], []
    for maps, refine in zip((small, large), refined, strict=True):
        before = refinement(2, (2,)) if refine else nn.Sequential()
        expected.append(before(maps))
        made = over_tokens(before, maps.shape[2:]) if refine else nn.Sequential()
        given.append(made(maps_of(maps)))
    upsampled = F.interpolate(expected[0], size=GRID, mode="bilinear", align_corners=True)
    step = SplitMAA(over_tokens(block))
    close(tensor_of(step(*given)), block(upsampled + expected[1]))


def test_a_raw_map_joins_every_channel():
    coarse, block = refinement(1, (2,)), refinement(2, (2, 1))
    small, large = torch.randn(TOKENS, 1, 3, 5), torch.randn(TOKENS, 1, *GRID)
    upsampled = F.interpolate(coarse(small), size=GRID, mode="bilinear", align_corners=True)
    coarser = over_tokens(coarse, (3, 5))(maps_of(small))
    step = SplitMAA(over_tokens(block))
    close(tensor_of(step(coarser, maps_of(large))), block(upsampled + large))


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_the_conv_of_the_affinity_is_the_affinity_of_the_convolved_queries(outputs):
    channels = 8
    block = refinement(1, (outputs,))
    keys, queries = torch.randn(1, TOKENS, channels), torch.randn(1, GRID[0] * GRID[1], channels)
    affinity = (keys @ queries.transpose(1, 2)).view(TOKENS, 1, *GRID)
    sar = new_sar(steps_of(block, channels), TOKENS, GRID)
    images = Queries(GRID, channels, sar.kernels)(queries / channels**0.5)
    maps = Maps([Affinity(GRID, 1)(keys, image) for image in images])
    close(tensor_of(sar.double()(maps)), block(affinity))
