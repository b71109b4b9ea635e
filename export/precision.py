"""Which parts of the FP16 graphs stay FP32: statistics, exponentials, and the residual stream."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mrcfa.mit import MiT, Stage


class WideLayerNorm(nn.LayerNorm):
    """LayerNorm in FP32, scale and shift included, that answers in the type of what follows it."""

    answer = torch.float16

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.float()).to(self.answer)


class ResidualStart(WideLayerNorm):
    """The norm after a patch embedding, where a stage's tokens start in FP32."""

    answer = torch.float32


def widely(operation: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Run an operation in FP32 and come back: the casts make an island explicit in the graph."""
    return operation(value.float()).to(value.dtype)


def make_half(module: nn.Module) -> None:
    """Round the parameters to FP16 once; norms keep FP32 parameters and compute in FP32.

    A stage's tokens start in FP32 and `tokens + block(norm(tokens))` stays there, because FP32 plus
    FP16 is FP32: the rounding of one block is not added to that of all before it.
    """
    module.half()
    for child in module.modules():
        if isinstance(child, nn.LayerNorm):
            child.float().__class__ = WideLayerNorm
    for encoder in (child for child in module.modules() if isinstance(child, MiT)):
        for stage in encoder.stages:
            assert isinstance(stage, Stage)
            stage.embed.norm.__class__ = ResidualStart
