"""Mix Transformer (MiT), SegFormer's encoder: four stages at 1/4, 1/8, 1/16 and 1/32."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.config import HEADS, MLP_RATIO, REDUCTIONS


class MiT(nn.Module):
    """The encoder: normalised RGB (B, 3, H, W) -> c1…c4, (B, C, H/s, W/s) for s = 4, 8, 16, 32."""

    def __init__(self, widths: Sequence[int], depths: Sequence[int]) -> None:
        super().__init__()
        widths = (3, *widths)
        self.stages = nn.ModuleList(
            Stage(
                PatchEmbedding(widths[i], widths[i + 1], kernel=7 if i == 0 else 3),
                [Block(widths[i + 1], HEADS[i], REDUCTIONS[i]) for _ in range(depth)],
            )
            for i, depth in enumerate(depths)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        features = []
        for stage in self.stages:
            image = stage(image)
            features.append(image)
        return tuple(features)


class Stage(nn.Module):
    """Patch embedding, transformer blocks and a closing norm."""

    def __init__(self, embed: "PatchEmbedding", blocks: list["Block"]) -> None:
        super().__init__()
        self.embed = embed
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(embed.proj.out_channels, eps=1e-6)

    def forward(self, image: Tensor) -> Tensor:
        tokens, grid = self.embed(image)
        for block in self.blocks:
            tokens = block(tokens, grid)
        # The norm gets an image: ONNX Runtime would fuse a norm of tokens with the addition before
        # it, which is slower.
        return self.norm(tokens.unflatten(1, grid)).permute(0, 3, 1, 2)


class PatchEmbedding(nn.Module):
    """Embedding of overlapping patches: a strided conv, then LayerNorm over channels."""

    def __init__(self, inputs: int, width: int, kernel: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(inputs, width, kernel, stride=(kernel + 1) // 2, padding=kernel // 2)
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, image: Tensor) -> tuple[Tensor, tuple[int, int]]:
        image = self.proj(image)
        return self.norm(as_tokens(image)), (image.shape[2], image.shape[3])


class Block(nn.Module):
    """Pre-norm transformer block: efficient attention, then Mix-FFN."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn: nn.Module = Attention(width, heads, reduction)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp: nn.Module = MixFFN(width, MLP_RATIO * width)
        self.drop_path = 0.0
        """Probability that training drops a branch, drawn for each sample."""

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        tokens = tokens + self._kept(self.attn(self.norm1(tokens), grid))
        return tokens + self._kept(self.mlp(self.norm2(tokens), grid))

    def _kept(self, branch: Tensor) -> Tensor:
        """Stochastic depth: drop the branch of some samples and scale up the others.

        Scaling keeps the mean.
        """
        if not self.training or not self.drop_path:
            return branch
        kept = torch.rand(len(branch), 1, 1, device=branch.device) >= self.drop_path
        return branch * (kept / (1 - self.drop_path))


class Attention(nn.Module):
    """Multi-head self-attention with keys and values reduced by a strided conv."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.width, self.heads, self.reduction = width, heads, reduction
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.sr: nn.Conv2d | None = None
        if reduction > 1:
            self.sr = nn.Conv2d(width, width, reduction, stride=reduction)
            self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        q, k, v = map(self._split, (self.q(tokens), *self._keys_and_values(tokens, grid)))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def _keys_and_values(self, tokens: Tensor, grid: tuple[int, int]) -> tuple[Tensor, ...]:
        if self.sr is not None:
            tokens = self.norm(as_tokens(self.sr(as_image(tokens, grid))))
        return self.kv(tokens).chunk(2, dim=-1)

    def _split(self, tokens: Tensor) -> Tensor:
        """Split channels into heads: (B, N, C) -> (B, heads, N, C/heads)."""
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


class MixFFN(nn.Module):
    """Linear, depthwise 3×3 conv (which encodes position), GELU, linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        hidden = as_tokens(self.dwconv(as_image(self.fc1(tokens), grid)))
        return self.fc2(F.gelu(hidden))


def as_tokens(image: Tensor) -> Tensor:
    """Flatten an image: (B, C, h, w) -> (B, h·w, C)."""
    return image.permute(0, 2, 3, 1).flatten(1, 2)


def as_image(tokens: Tensor, grid: Sequence[int]) -> Tensor:
    """Unflatten tokens: (B, h·w, C) -> (B, C, h, w)."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)
