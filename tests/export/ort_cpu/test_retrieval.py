"""Retrieval with classes last against the plain one, in float64."""

import pytest
import torch

from export.decoder import Retrieval
from export.ort_cpu.retrieval import LARGEST_EXPONENT, LastAxisMask, LastAxisRetrieval
from mrcfa.model.frames import FullSizeMask

pytestmark = pytest.mark.usefixtures("float64")

REFERENCES, KEPT, TOKENS, CLASSES, GRID = 3, 12, 16, 5, (6, 10)
QUARTER = (12, 20)


@pytest.fixture
def inputs():
    """Base, maps in [0, 30] and values; four tokens are padding."""
    positions = GRID[0] * GRID[1]
    base = torch.randn(1, CLASSES, *GRID)
    maps = 30 * torch.rand(REFERENCES, TOKENS, positions)
    return base, maps, torch.randn(REFERENCES, TOKENS, CLASSES)


@pytest.mark.parametrize("offset", [0.0, 3.0, 25.0])
def test_the_division_after_the_product_gives_the_same_logits(inputs, offset):
    base, maps, values = inputs
    plain = Retrieval(QUARTER, KEPT)
    plain_logits = plain(base.float(), maps[:, :KEPT].float(), values[:, :KEPT].float()).double()
    last = LastAxisRetrieval(QUARTER, offset, KEPT, TOKENS).double()
    logits = last(base, maps.split(1), values.split(1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(logits, plain_logits, rtol=1e-5, atol=1e-5)


def test_fp32_holds_the_sums_at_the_edge_of_what_fits():
    """All tokens at the bound, with values far beyond any classifier's."""
    bound, positions = 2 * LARGEST_EXPONENT, GRID[0] * GRID[1]
    last = LastAxisRetrieval(GRID, bound - LARGEST_EXPONENT, TOKENS, TOKENS).float()
    for level in (0.0, bound):
        maps = torch.full((1, TOKENS, positions), level).float()
        values = torch.full((1, TOKENS, CLASSES), 1e6).float()
        logits = last(torch.zeros(1, CLASSES, *GRID).float(), [maps], [values])
        torch.testing.assert_close(logits, torch.full_like(logits, 1e6))


@pytest.mark.parametrize("frame", [(48, 80), (31, 57)])
def test_the_mask_of_logits_with_classes_last_is_the_mask(frame):
    logits = torch.randn(1, CLASSES, *QUARTER)
    mask = FullSizeMask((48, 80), frame)(logits)
    assert torch.equal(LastAxisMask((48, 80), frame)(logits.permute(0, 2, 3, 1)), mask)
