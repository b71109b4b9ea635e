"""Casts of graphs to FP32 or FP16; in FP16, norms, softmax and residual stream stay FP32."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mrcfa.model.mit import PatchEmbedding


class Wide:
    """Base of modules whose parameters and constants stay FP32 in an FP16 graph."""


class WideLayerNorm(Wide, nn.LayerNorm):
    """LayerNorm in FP32, scale and shift included, whose result is cast to the graph's type."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps)
        self.load_state_dict(norm.float().state_dict())
        self.dtype = dtype

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.float()).to(self.dtype)


def widely(operation: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Run an operation in FP32 and cast back, so that the graph has explicit casts around it."""
    return operation(value.float()).to(value.dtype)


def widened(value: Tensor) -> Tensor:
    """The value in FP32, or in its own type if that is wider."""
    return value.float() if value.dtype == torch.float16 else value


def in_fp32(graph: nn.Module) -> nn.Module:
    """The graph with its float64 parameters rounded once."""
    return rounded_to(graph, torch.float32)


def in_fp16(graph: nn.Module) -> nn.Module:
    """The graph rounded to FP16, except norms, which keep FP32 parameters and compute in FP32."""
    _widen_norms(graph)
    return rounded_to(graph, torch.float16)


def rounded_to(graph: nn.Module, dtype: torch.dtype) -> nn.Module:
    for part in graph.modules():
        kind = torch.float32 if isinstance(part, Wide) else dtype
        for name, weight in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(weight.detach().to(kind)))
        for name, constant in list(part.named_buffers(recurse=False)):
            if constant.is_floating_point():
                setattr(part, name, constant.to(kind))
    return graph


def _widen_norms(graph: nn.Module) -> None:
    """Put norms in FP32. The norm of a patch embedding also outputs FP32, the stage's first tokens.

    `tokens + block(norm(tokens))` then stays FP32, because FP32 plus FP16 is FP32, and rounding
    errors do not add up from block to block.
    """
    for part in list(graph.modules()):
        dtype = torch.float32 if isinstance(part, PatchEmbedding) else torch.float16
        for name, child in list(part.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(part, name, WideLayerNorm(child, dtype))
