"""Retrieval with classes last against the plain one, in float64."""

import pytest
import torch
from torch.nn import functional as F

from mrcfa.export.ort_cpu.retrieval import (
    LARGEST_EXPONENT,
    LastAxisMask,
    LastAxisRetrieval,
    LastAxisScores,
    LastAxisSoftmax,
)
from mrcfa.export.refinement import MapsWithMaximum
from mrcfa.export.retrieval import Retrieval, Scores
from mrcfa.model.frames import FullSizeMask

pytestmark = pytest.mark.usefixtures("float64")

REFERENCES, KEPT, TOKENS, CLASSES, GRID = 3, 12, 16, 5, (6, 10)
QUARTER = (12, 20)


@pytest.fixture
def inputs():
    """Base, maps in [0, 30] and values with a column of ones; four tokens are padding."""
    positions = GRID[0] * GRID[1]
    base = torch.randn(1, CLASSES, *GRID)
    maps = 30 * torch.rand(REFERENCES, TOKENS, positions)
    values = F.pad(torch.randn(REFERENCES, TOKENS, CLASSES), (0, 1), value=1.0)
    values[:, KEPT:] = 0
    return base, maps, values


@pytest.mark.parametrize("offset", [0.0, 3.0, 25.0, None])
@pytest.mark.parametrize("group", [TOKENS, 8, 4])
def test_the_division_after_the_product_gives_the_same_logits(inputs, offset, group):
    base, maps, values = inputs
    kept = MapsWithMaximum.of(maps[:, :KEPT].float().unflatten(2, GRID))
    plain = Retrieval(KEPT)(kept, values[:, :KEPT, :-1].float())
    plain_logits = Scores(QUARTER)(base.float(), [plain]).double()
    last, found = LastAxisRetrieval(offset).double(), []
    for tokens in zip(maps.split(1), values.split(1), strict=True):
        merged = None
        for part in zip(*(tensor.split(group, dim=1) for tensor in tokens), strict=True):
            new = LastAxisSoftmax(*last(*part))
            merged = new if merged is None else merged.merged(new)
        found.append(merged)
    logits = LastAxisScores(QUARTER)(base, found).permute(0, 3, 1, 2)
    torch.testing.assert_close(logits, plain_logits, rtol=1e-5, atol=1e-5)


def test_fp32_holds_the_sums_at_the_edge_of_what_fits():
    """All tokens at the bound, with values far beyond any classifier's."""
    bound, positions = 2 * LARGEST_EXPONENT, GRID[0] * GRID[1]
    last = LastAxisRetrieval(bound - LARGEST_EXPONENT).float()
    for level in (0.0, bound):
        maps = torch.full((1, TOKENS, positions), level).float()
        values = F.pad(torch.full((1, TOKENS, CLASSES), 1e6), (0, 1), value=1.0).float()
        found = LastAxisSoftmax(*last(maps, values))
        logits = LastAxisScores(GRID)(torch.zeros(1, CLASSES, *GRID).float(), [found])
        torch.testing.assert_close(logits, torch.full_like(logits, 1e6))


@pytest.mark.parametrize("frame", [(48, 80), (31, 57)])
def test_the_mask_of_logits_with_classes_last_is_the_mask(frame):
    logits = torch.randn(1, CLASSES, *QUARTER)
    mask = FullSizeMask((48, 80), frame)(logits)
    assert torch.equal(LastAxisMask((48, 80), frame)(logits.permute(0, 2, 3, 1)), mask)
