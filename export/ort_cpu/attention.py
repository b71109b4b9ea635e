"""The encoder's attention as CPUs want it: fewer products, and scores that stay in the cache."""

import torch
from torch import Tensor, nn

from mrcfa.export.folds import affine, fold_bias, fold_norm
from mrcfa.model.mit import Attention, Block

SCORES = 400_000
"""Scores that are computed at once: with their exponentials some 3 MB, a share of a cache."""
SLICES = 32
"""At most, so that a large frame does not make a graph of thousands of nodes."""


class SlicedAttention(Attention):
    """`Attention`, for slices of the queries one after the other (docs/algebra.md, lemma 9).

    At 480×864 the first stage has 10 M scores a block, 42 MB that would go to memory and come back
    for the softmax and again for the values.
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
    """The same for one head and queries without a bias, with two products fewer over all tokens.

    The matrices of queries and projection are applied to the few keys and values instead
    (docs/algebra.md, lemma 9).
    """

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        keys = keys @ (self.q.weight * self.width**-0.5)
        return self._mix(tokens, keys, self.proj(values))


def slice_attention(block: Block, scores: int = SCORES) -> None:
    """Let a block attend in slices, and by fewer products if it has one head.

    For one head γ and β of the block's norm fold into the layers that read the norm.
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
