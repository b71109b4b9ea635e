"""Graphs for GPUs with matrix products for 1×1 convs, in FP16 until they get Q/DQ nodes.

TensorRT's 8-bit convs with a scale for each channel write FP32. Its 8-bit matrix products write
FP16, and the scales are part of the kernel that reads the result: half the bytes.
"""

import torch
from torch import Tensor, nn

from mrcfa.export.folds import Affine, affine
from mrcfa.export.precision import WideLayerNorm, rounded_to
from mrcfa.export.stages import LastAxisFFN, channels_first, channels_last, linear_of


class Product(nn.Module):
    """A 1×1 conv as a matrix product with channels last: (B, C, h, w) -> (B, C', h, w).

    Its transposes cancel those of its neighbours, whose images have channels last anyway.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.linear = _linear(conv)

    def forward(self, image: Tensor) -> Tensor:
        return channels_first(self.linear(channels_last(image)))


class ProductFFN(nn.Module):
    """`LastAxisFFN` with channels last but for the depthwise conv, which `build` brings there."""

    def __init__(self, ffn: LastAxisFFN) -> None:
        super().__init__()
        self.fc1, self.fc2, self.dwconv = _linear(ffn.fc1), _linear(ffn.fc2), ffn.dwconv

    def forward(self, image: Tensor) -> Tensor:
        hidden = channels_last(self.dwconv(channels_first(self.fc1(image))))
        hidden = (hidden * 0.5) * (1 + torch.erf(hidden / 2**0.5))
        answer: Tensor = self.fc2(hidden)
        return answer


def in_products(graph: nn.Module) -> nn.Module:
    """FP16 with products for 1×1 convs, norms in FP32, and the residual stream in FP16.

    8 bits round more than FP16 does, so an FP32 residual stream would keep digits that are noise.
    """
    for part in list(graph.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, LastAxisFFN):
                setattr(part, name, ProductFFN(child))
            elif isinstance(child, nn.Conv2d) and child.kernel_size == (1, 1):
                setattr(part, name, Product(child))
            elif isinstance(child, nn.LayerNorm):
                setattr(part, name, WideLayerNorm(child, torch.float16))
    return rounded_to(graph, torch.float16)


def _linear(conv: nn.Conv2d) -> nn.Linear:
    weight, bias = affine(conv)
    return linear_of(Affine(weight.flatten(1), bias))
