"""SegFormer's head, which fuses the four stages into one feature F at 1/4."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.model.config import FEATURE_CHANNELS
from mrcfa.model.frames import resize
from mrcfa.model.mit import as_image, as_tokens


class Fusion(nn.Module):
    """Lift, upsample, concatenate (coarsest first) and mix: c1…c4 -> F (B, 256, H/4, W/4)."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.lift = nn.ModuleList(nn.Linear(width, FEATURE_CHANNELS) for width in widths)
        self.mix = nn.Conv2d(FEATURE_CHANNELS * len(widths), FEATURE_CHANNELS, 1, bias=False)
        self.norm = nn.BatchNorm2d(FEATURE_CHANNELS)

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        grid = stages[0].shape[2:]
        lifted = [
            resize(as_image(linear(as_tokens(stage)), stage.shape[2:]), grid)
            for linear, stage in zip(self.lift, stages, strict=True)
        ]
        return F.relu(self.norm(self.mix(torch.cat(lifted[::-1], dim=1))))
