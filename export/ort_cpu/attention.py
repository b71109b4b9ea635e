"""The encoder's attention for CPUs: fewer products, and scores that stay in the cache."""

import torch
from torch import Tensor, nn

from mrcfa.export.folds import affine, fold_bias, fold_norm
from mrcfa.model.mit import Attention, Block

SCORES = 400_000
"""Scores that are computed at once: with their exponentials some 3 MB, a share of a cache."""
SLICES = 32
"""The largest number of slices, so that the graph of a large frame has no thousands of nodes."""


class SlicedAttention(Attention):
    """`Attention` for slices of the queries, one after the other (docs/algebra.md, lemma 9).

    At 480×864 a block of the first stage has 10 M scores, 42 MB. Unsliced they would be written to
    memory, read for the softmax, and read again for the values.
    """

    def __init__(self, attention: Attention, scores: int = SCORES) -> None:
        super().__init__(attention.width, attention.heads, attention.reduction)
        self.load_state_dict(attention.state_dict())
        self.scores = scores

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        scale = (self.width // self.heads) ** -0.5
        queries, keys, values = map(self._split, (self.q(tokens), keys * scale, values))
        mixed = self._mix(queries, keys, values)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def _mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(…, N, C) queries, (…, n, C) keys and values -> (…, N, C)."""
        count = queries.shape[-2]
        wanted = -(-self.heads * count * keys.shape[-2] // self.scores)
        mixed = []
        for part in queries.split(-(-count // min(wanted, SLICES)), dim=-2):
            mixed.append((part @ keys.transpose(-2, -1)).softmax(dim=-1) @ values)
        return torch.cat(mixed, dim=-2) if len(mixed) > 1 else mixed[0]


class OneHeadAttention(SlicedAttention):
    """`SlicedAttention` for one head and queries without a bias, with two products fewer.

    The matrices of queries and projection are applied to keys and values instead, which are fewer
    than the queries (docs/algebra.md, lemma 9).
    """

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        keys = keys @ (self.q.weight * self.width**-0.5)
        return self._mix(tokens, keys, self.proj(values))


def slice_attention(block: Block, scores: int = SCORES) -> None:
    """Replace a block's attention by `SlicedAttention`, or `OneHeadAttention` if it has one head.

    With one head, γ and β of the block's norm are folded into the layers that read the norm.
    """
    attention = block.attn
    assert isinstance(attention, Attention)
    if attention.heads > 1 or attention.sr is None:
        block.attn = SlicedAttention(attention, scores)
        return
    folded = OneHeadAttention(attention, scores)
    assert folded.sr is not None
    for part, without_norm in (
        (folded.sr, fold_norm(affine(folded.sr), block.norm1)),
        (folded.q, fold_bias(fold_norm(affine(folded.q), block.norm1))),
    ):
        part.weight = nn.Parameter(without_norm.weight)
        part.bias = nn.Parameter(without_norm.bias)
    nn.init.ones_(block.norm1.weight)
    nn.init.ones_(block.norm1.bias)
    block.attn = folded
