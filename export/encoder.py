"""The encoder graph: a camera frame in, everything the decoder needs of it out. For export only."""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import (
    Affine,
    affine,
    fold_after_conv,
    fold_fusion,
    fold_query_scale,
    fold_values,
)
from export.layout import Layout
from export.precision import set_precision
from mrcfa.config import MEAN, STD
from mrcfa.mit import as_tokens
from mrcfa.model import MRCFA


class EncoderGraph(nn.Module):
    """uint8 (1, h, w, 3) -> base, queries (finest scale first) and entry; see `Layout`."""

    def __init__(self, model: MRCFA, layout: Layout, dtype: torch.dtype) -> None:
        super().__init__()
        config = model.config
        self.layout, self.dtype = layout, dtype
        self.encoder = deepcopy(model.encoder)
        self.fusion = nn.ModuleList(conv_of(stage) for stage in fold_fusion(model.fusion))
        self.query, self.key = nn.ModuleDict(), nn.ModuleDict()
        for stride in layout.strides:
            name = str(stride)
            query, key = affine(_linear(model.query[name])), affine(_linear(model.key[name]))
            self.query[name] = conv_of(fold_query_scale(query, config.width(stride)))
            if name in model.reduce:
                key = fold_after_conv(key, affine(_conv(model.reduce[name])))
            self.key[name] = conv_of(key)
        classify, value = affine(model.classify), affine(model.value)
        self.classify = conv_of(classify)
        self.value = conv_of(fold_values(classify, value, len(config.references)))
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))
        set_precision(self, dtype)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        stages = self.encoder(self._prepare(image))
        fused = self._fuse(stages)
        half = F.avg_pool2d(fused, 2)  # bilinear halving of an even size, exactly
        feature = fused if self.layout.config.output_stride == 4 else half
        by_stride = dict(zip((4, 8, 16, 32), stages, strict=True))
        queries = [
            as_tokens(self.query[str(stride)](by_stride[stride]))
            for stride in reversed(self.layout.strides)
        ]
        rows = self.layout.rows
        keys = [
            as_tokens(self.key[str(stride)](by_stride[stride])).reshape(1, rows, -1)
            for stride in self.layout.strides
        ]
        entry = torch.cat([*keys, as_tokens(self.value(half))], dim=2)
        return self.classify(feature), *queries, entry

    def _prepare(self, image: Tensor) -> Tensor:
        """Resize (bilinear, half-pixel, no antialias) and normalise: (1, 3, H, W)."""
        pixels = image.to(self.dtype).permute(0, 3, 1, 2)
        if tuple(image.shape[1:3]) != self.layout.config.size:
            pixels = F.interpolate(
                pixels, size=self.layout.config.size, mode="bilinear", align_corners=False
            )
        return (pixels - self.mean) / self.std

    def _fuse(self, stages: tuple[Tensor, ...]) -> Tensor:
        """F, by the matrices of `fold_fusion`, each at its stage's own resolution."""
        total = self.fusion[0](stages[0])
        for conv, stage in zip(self.fusion[1:], stages[1:], strict=True):
            total = total + F.interpolate(
                conv(stage), size=total.shape[2:], mode="bilinear", align_corners=False
            )
        return F.relu(total)


def conv_of(folded: Affine) -> nn.Conv2d:
    """A conv that holds a folded map; its kernel tiles the image, so stride and size are one."""
    weight = folded.weight.reshape(*folded.weight.shape[:2], *(folded.weight.shape[2:] or (1, 1)))
    outputs, inputs, kernel, _ = weight.shape
    conv = nn.Conv2d(inputs, outputs, kernel, stride=kernel)
    conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(folded.bias)
    return conv


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module


def _conv(module: nn.Module) -> nn.Conv2d:
    assert isinstance(module, nn.Conv2d)
    return module
