"""SAR and MAA with tokens as channels, in both layouts, against the reference model's blocks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from export.decoder import Affinity, Queries
from export.refinement import Aggregation, GroupedLayer, LoneNorm, Maps, SplitLayer, steps_of
from mrcfa.affinity import Refinement

pytestmark = pytest.mark.usefixtures("float64")

TOKENS, GRID = 16, (6, 10)
LAYERS = [GroupedLayer, SplitLayer]


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


def over_tokens(layer, block, grid=GRID):
    return nn.Sequential(*(layer(step, TOKENS, grid) for step in steps_of(block))).double()


def maps_of(tensor, layer, spread=None):
    """(S, C, h, w), as the reference has them -> the maps of that layout."""
    if layer is GroupedLayer:
        return Maps([tensor.flatten(0, 1)[None]])
    wider = tensor if spread is None else tensor * spread.view(-1, 1, 1, 1)
    return Maps([channel[None] for channel in wider.unbind(1)], spread)


def tensor_of(maps):
    """The way back, without the spread."""
    stacked = torch.stack([tensor[0].unflatten(0, (TOKENS, -1)) for tensor in maps.tensors], dim=2)
    tensor = stacked.flatten(1, 2)
    return tensor if maps.spread is None else tensor / maps.spread.view(-1, 1, 1, 1)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("outputs", [(1,), (2,), (3,), (1, 2), (2, 2), (2, 1)])
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_block_computes_what_the_reference_does(layer, inputs, outputs):
    block = refinement(inputs, outputs)
    maps = torch.randn(TOKENS, inputs, *GRID)
    close(tensor_of(over_tokens(layer, block)(maps_of(maps, layer))), block(maps))


@pytest.mark.parametrize("outputs", [(1,), (2,), (2, 2, 1)])
def test_the_spread_of_what_comes_in_does_not_matter(outputs):
    block = refinement(2, outputs)
    maps, spread = torch.randn(TOKENS, 2, *GRID), torch.rand(1, TOKENS) * 9 + 0.1
    answer = over_tokens(SplitLayer, block)(maps_of(maps, SplitLayer, spread))
    close(tensor_of(answer), block(maps))


@pytest.mark.parametrize("scales", [[0.0, 1.0], [-2.0, 0.0], [0.0, 0.0], [1e-12, -3.0]])
def test_a_norm_may_scale_by_nothing_or_turn_the_sign(scales):
    block = refinement(1, (2,), scales)
    maps = torch.randn(TOKENS, 1, *GRID)
    answer = tensor_of(over_tokens(SplitLayer, block)(maps_of(maps, SplitLayer)))
    torch.testing.assert_close(answer, block(maps), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layer", LAYERS)
def test_maps_without_contrast_stay_finite_and_right(layer):
    block = refinement(1, (2,))
    maps = torch.zeros(TOKENS, 1, *GRID)
    close(tensor_of(over_tokens(layer, block)(maps_of(maps, layer))), block(maps))


def test_rounding_makes_no_variance_negative():
    block = refinement(1, (2,)).float()
    nn.init.zeros_(block[0].bias)
    block[0].weight.data.zero_()[:, :, 1, 1] = 1
    maps = torch.linspace(100, 1000, TOKENS).float().view(-1, 1, 1, 1).expand(-1, 1, *GRID)
    answer = over_tokens(SplitLayer, block).float()(maps_of(maps, SplitLayer))
    expected = block.double()(maps.double())
    torch.testing.assert_close(tensor_of(answer).double(), expected, rtol=0, atol=1e-2)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("refined", [(True, True), (True, False), (False, True), (False, False)])
def test_aggregation_adds_maps_of_different_spreads(layer, refined):
    """Both refined, which gives them a spread, or either as it is."""
    block = refinement(2, (2, 1))
    small, large = torch.randn(TOKENS, 2, 3, 5), torch.randn(TOKENS, 2, *GRID)
    expected, given = [], []
    for maps, refine in zip((small, large), refined, strict=True):
        before = refinement(2, (2,)) if refine else nn.Sequential()
        expected.append(before(maps))
        made = over_tokens(layer, before, maps.shape[2:]) if refine else nn.Sequential()
        given.append(made(maps_of(maps, layer)))
    upsampled = F.interpolate(expected[0], size=GRID, mode="bilinear", align_corners=True)
    step = Aggregation(over_tokens(layer, block))
    close(tensor_of(step(*given)), block(upsampled + expected[1]))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_raw_map_joins_every_channel(layer):
    coarse, block = refinement(1, (2,)), refinement(2, (2, 1))
    small, large = torch.randn(TOKENS, 1, 3, 5), torch.randn(TOKENS, 1, *GRID)
    upsampled = F.interpolate(coarse(small), size=GRID, mode="bilinear", align_corners=True)
    coarser = over_tokens(layer, coarse, (3, 5))(maps_of(small, layer))
    step = Aggregation(over_tokens(layer, block))
    close(tensor_of(step(coarser, maps_of(large, layer))), block(upsampled + large))


def test_the_conv_of_the_affinity_is_the_affinity_of_the_convolved_queries():
    channels = 8
    block = refinement(1, (1,))
    keys, queries = torch.randn(1, TOKENS, channels), torch.randn(1, GRID[0] * GRID[1], channels)
    affinity = (keys @ queries.transpose(1, 2)).view(TOKENS, 1, *GRID)
    (step,) = steps_of(block, channels)
    convolve = Queries(GRID, channels, step.conv.weight)
    maps = Affinity(GRID, 1)(keys, convolve(queries / channels**0.5))
    close(tensor_of(LoneNorm(step, TOKENS, GRID).double()(Maps([maps]))), block(affinity))
