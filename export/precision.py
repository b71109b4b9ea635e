"""Casts graphs to FP32 or FP16; in FP16, norms, softmax and residual stream stay FP32."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mrcfa.model.mit import PatchEmbedding


class Wide:
    """Base of modules whose parameters and constants stay FP32 in an FP16 graph."""


class WideLayerNorm(Wide, nn.LayerNorm):
    """LayerNorm in FP32, scale and shift included, that answers in the type of what follows it."""

    def __init__(self, norm: nn.LayerNorm, answer: torch.dtype) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps)
        self.load_state_dict(norm.float().state_dict())
        self.answer = answer

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.float()).to(self.answer)


def widely(operation: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Run an operation in FP32 and come back: the casts make an island explicit in the graph."""
    return operation(value.float()).to(value.dtype)


def widened(value: Tensor) -> Tensor:
    """At least FP32."""
    return value.float() if value.dtype == torch.float16 else value


def in_fp32(graph: nn.Module) -> nn.Module:
    """The graph with its float64 parameters rounded once."""
    return rounded_to(graph, torch.float32)


def in_fp16(graph: nn.Module) -> nn.Module:
    """The same, but for norms, which keep FP32 parameters and compute in FP32."""
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
    """A stage's tokens start in FP32, behind the norm of its patch embedding.

    `tokens + block(norm(tokens))` then stays FP32, because FP32 plus FP16 is FP32, and the rounding
    of one block is not added to that of all before it.
    """
    for part in list(graph.modules()):
        answer = torch.float32 if isinstance(part, PatchEmbedding) else torch.float16
        for name, child in list(part.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(part, name, WideLayerNorm(child, answer))
