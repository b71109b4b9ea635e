"""Attention in slices against the reference model's, in float64."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from mrcfa.export.ort_cpu.attention import slice_attention
from mrcfa.model.mit import Block

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(("heads", "reduction"), [(1, 2), (1, 1), (2, 2), (2, 1)])
@pytest.mark.parametrize("scores", [10_000, 97, 1])
def test_attention_in_slices_is_attention(heads, reduction, scores):
    block = Block(8, heads, reduction)
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    sliced = deepcopy(block)
    slice_attention(sliced, scores)
    tokens = torch.randn(1, 48, 8)
    torch.testing.assert_close(
        sliced(tokens, (6, 8)), block(tokens, (6, 8)), rtol=1e-12, atol=1e-12
    )
