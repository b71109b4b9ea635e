"""SAR and MAA in the plain decoder, tokens as channels, against the reference model's blocks."""

import pytest
import torch
from torch import nn

from mrcfa.export.refinement import (
    MAA,
    MapNorm,
    MapsWithMaximum,
    Queries,
    steps_of,
    upsampled,
)
from mrcfa.model.affinity import Refinement
from mrcfa.model.frames import resize

pytestmark = pytest.mark.usefixtures("float64")

TOKENS, GRID = 16, (6, 10)


def refinement(inputs, outputs):
    block = Refinement(inputs, outputs, [3] * len(outputs))
    for norm in list(block)[1::3]:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return block


@pytest.mark.parametrize("outputs", [(1,), (2,), (3,), (1, 2), (2, 2), (2, 1), (1, 2, 3)])
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("contrast", [1, 0])
def test_a_block_computes_what_the_reference_does(inputs, outputs, contrast):
    block = refinement(inputs, outputs)
    maps = contrast * torch.randn(TOKENS, inputs, *GRID)
    answer = MAA(steps_of(block), TOKENS).double()(maps.flatten(0, 1)[None])
    wanted = block(maps).flatten(0, 1)[None]
    torch.testing.assert_close(answer, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("contrast", [1, 0])
def test_a_block_before_a_softmax_computes_the_largest_map_too(contrast):
    steps, maps = steps_of(refinement(2, (3, 1))), contrast * torch.randn(3, TOKENS * 2, *GRID)
    wanted = MapsWithMaximum.of(MAA(steps, TOKENS).double()(maps))
    answer = MAA(steps, TOKENS, for_softmax=True).double()(maps)
    torch.testing.assert_close(answer, wanted, rtol=1e-9, atol=1e-9)


def test_maps_that_come_divided_by_the_root_of_their_channels_are_refined_alike():
    block, maps = refinement(1, (1, 2)), torch.randn(TOKENS, 1, *GRID)
    steps = steps_of(block, channels=64)
    answer = MAA(steps, TOKENS).double()(maps.flatten(0, 1)[None] / 8)
    wanted = block(maps).flatten(0, 1)[None]
    torch.testing.assert_close(answer, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_first_conv_may_be_done_on_the_queries(outputs):
    block, width = refinement(1, (outputs,)), 5
    queries, keys = torch.randn(1, GRID[0] * GRID[1], width), torch.randn(1, TOKENS, width)
    wanted = block((keys @ queries.transpose(1, 2)).view(TOKENS, 1, *GRID))
    (step,) = steps_of(block)
    images = Queries(GRID, width, step.conv.weight)(queries)
    maps = [(keys @ image).view(1, TOKENS, *GRID) for image in images]
    answer = MapNorm(step)(torch.stack(maps, dim=2).flatten(1, 2))
    torch.testing.assert_close(answer, wanted.flatten(0, 1)[None], rtol=1e-9, atol=1e-9)


def test_maa_upsamples_with_aligned_corners():
    maps = torch.randn(1, TOKENS, 3, 5)
    torch.testing.assert_close(upsampled(maps), resize(maps, GRID, align_corners=True))
