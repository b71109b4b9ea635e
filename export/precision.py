"""Which parts of the FP16 graphs stay FP32: statistics, exponentials and sums over many elements."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class WideLayerNorm(nn.LayerNorm):
    """LayerNorm in FP32, scale and shift included, whatever the tokens are."""

    def forward(self, tokens: Tensor) -> Tensor:
        return widely(super().forward, tokens)


class WideGroupNorm(nn.GroupNorm):
    """GroupNorm in FP32, scale and shift included, whatever the maps are."""

    def forward(self, maps: Tensor) -> Tensor:
        return widely(super().forward, maps)


def widely(operation: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Run an operation in FP32 and come back: the casts make an island explicit in the graph."""
    return operation(value.float()).to(value.dtype)


def set_precision(module: nn.Module, dtype: torch.dtype) -> None:
    """Round the parameters once; norms keep FP32 parameters and compute in FP32."""
    module.to(dtype)
    for child in module.modules():
        if isinstance(child, nn.LayerNorm):
            child.float().__class__ = WideLayerNorm
        elif isinstance(child, nn.GroupNorm):
            child.float().__class__ = WideGroupNorm
