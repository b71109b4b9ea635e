"""The number of blocks that the search finds."""

import pytest
from naming import naming

from mrcfa.errors import Unsupported
from mrcfa.export.quantization.sensitivity import most_blocks


@pytest.mark.parametrize("blocks", [1, 2, 5, 34])
@pytest.mark.parametrize("good", [1, 3, 17, 34])
def test_it_takes_the_most_blocks_that_lose_no_more_than_allowed(blocks, good):
    measured = []

    def loss(count):
        measured.append(count)
        return 0.1 if count <= good else 2.0

    found, curve = most_blocks(blocks, loss, 0.5)
    assert found == min(blocks, good)
    assert curve == {count: 0.1 if count <= good else 2.0 for count in sorted(set(measured))}
    assert blocks in curve
    assert len(set(measured)) <= 10


def test_a_loss_that_no_block_meets_is_an_error_with_a_remedy():
    with pytest.raises(Unsupported, match=naming("0.5", "3.00", "--keep-loss")):
        most_blocks(34, lambda count: 3.0 * count, 0.5)
