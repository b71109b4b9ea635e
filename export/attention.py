"""The encoder's attention as CPUs want it: fewer products, and scores that stay in the cache."""

import torch
from torch import Tensor

from mrcfa.mit import Attention

SCORES = 400_000
"""Scores that are computed at once: with their exponentials some 3 MB, a share of a cache."""
SLICES = 32
"""At most, so that a large frame does not make a graph of thousands of nodes."""


class SlicedAttention(Attention):
    """`Attention`, for slices of the queries one after the other.

    At 480×864 the first stage has 10 M scores a block, 42 MB that would go to memory and come back
    for the softmax and again for the values. Where there is one head, two products fold away. With
    q = Wx + b the scores are q·k = x·(Wᵀk) + b·k, so W and b move to the few keys; and softmax rows
    sum to one, so the projection moves to the few values, bias included.
    """

    scores = SCORES

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        keys, values = self._keys_and_values(tokens, grid)
        scale = (tokens.shape[2] // self.heads) ** -0.5
        if self.heads == 1:
            offset = (keys @ (self.q.bias * scale)).unsqueeze(1)
            keys = keys @ (self.q.weight * scale)
            return self._mix(tokens, keys, self.proj(values), offset)
        queries, keys, values = map(self._split, (self.q(tokens), keys * scale, values))
        mixed = self._mix(queries, keys, values)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def _mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, offset: Tensor | None = None
    ) -> Tensor:
        """(…, N, C) queries, (…, n, C) keys and values -> (…, N, C)."""
        count = queries.shape[-2]
        wanted = -(-self.heads * count * keys.shape[-2] // self.scores)
        mixed = []
        for part in queries.split(-(-count // min(wanted, SLICES)), dim=-2):
            scores = part @ keys.transpose(-2, -1)
            mixed.append((scores if offset is None else scores + offset).softmax(dim=-1) @ values)
        return torch.cat(mixed, dim=-2) if len(mixed) > 1 else mixed[0]
