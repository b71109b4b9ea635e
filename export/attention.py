"""The encoder's attention as CPUs want it: fewer products, and scores that stay in the cache."""

import torch
from torch import Tensor, nn

from export.folds import affine, fold_bias, fold_norm
from mrcfa.mit import Attention, Block

SCORES = 400_000
"""Scores that are computed at once: with their exponentials some 3 MB, a share of a cache."""
SLICES = 32
"""At most, so that a large frame does not make a graph of thousands of nodes."""


class SlicedAttention(Attention):
    """`Attention`, for slices of the queries one after the other.

    At 480×864 the first stage has 10 M scores a block, 42 MB that would go to memory and come back
    for the softmax and again for the values.
    """

    scores = SCORES

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        scale = (tokens.shape[2] // self.heads) ** -0.5
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
    """The same for one head and queries Wx without a bias, where two products fold away.

    The scores are Wx·k = x·(Wᵀk), so W moves to the few keys; and softmax rows sum to one, so the
    projection moves to the few values, bias included.
    """

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        keys = keys @ (self.q.weight * tokens.shape[2] ** -0.5)
        return self._mix(tokens, keys, self.proj(values))


def slice_attention(block: Block) -> None:
    """Let a block attend in slices, and by fewer products if it has one head."""
    attention = block.attn
    attention.__class__ = SlicedAttention
    if attention.heads > 1 or attention.sr is None:
        return
    attention.__class__ = OneHeadAttention
    for part, folded in (
        (attention.sr, fold_norm(affine(attention.sr), block.norm1)),
        (attention.q, fold_bias(fold_norm(affine(attention.q), block.norm1))),
    ):
        part.weight, part.bias = nn.Parameter(folded.weight), nn.Parameter(folded.bias)
    nn.init.ones_(block.norm1.weight)
    nn.init.ones_(block.norm1.bias)
