"""SegFormer, one frame at a time: what MRCFA is built on, and the baseline without time."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mrcfa.model.config import FEATURE_CHANNELS, Config
from mrcfa.model.fusion import Fusion
from mrcfa.model.mit import MiT


class Features(NamedTuple):
    """What the encoder sees in a frame: c1…c4 and the fused F (B, 256, H/4, W/4)."""

    stages: tuple[Tensor, ...]
    fused: Tensor

    def split(self, batch: int) -> "list[Features]":
        """Of a clip whose frames were encoded together, `batch` clips at a time: frame by frame."""
        parts = zip(*(each.split(batch) for each in (*self.stages, self.fused)), strict=True)
        return [Features(tuple(stages), fused) for *stages, fused in parts]


class SegFormer(nn.Module):
    """Encoder, fusion and `linear_pred`; a frame refers to no other.

    `ask`, `answer` and `decode` are the steps of a stream, which temporal models override.
    """

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(config)
            self.apply(_initialise)
        # CPUs convolve several times as fast in it; torch's stubs do not know the argument.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()

    def _build(self, config: Config) -> None:
        self.encoder = MiT(config.widths, config.depths)
        self.fusion = Fusion(config.widths)
        self.linear_pred = nn.Conv2d(FEATURE_CHANNELS, config.classes, 1)

    def forward(self, clip: Tensor) -> Tensor:
        """(B, T, 3, H, W) normalised clip -> (B, classes, H/4, W/4) logits of its last frame."""
        return self.predict_single(self.encode(clip[:, -1]))

    def encode(self, frames: Tensor) -> Features:
        """(B, 3, H, W) -> stage features and F."""
        stages = self.encoder(frames)
        return Features(stages, self.fusion(stages))

    def predict_single(self, features: Features) -> Tensor:
        """The single-frame prediction, which the authors use while there are no references."""
        logits: Tensor = self.linear_pred(features.fused)
        return logits

    def ask(self, features: Features) -> Any:
        """What the frame being segmented wants to know."""
        return features

    def answer(self, features: Features) -> Any:
        """What later frames may want of this one."""
        return None

    def decode(self, target: Any, references: list[Any]) -> Tensor:
        """(B, classes, H/4, W/4) logits."""
        return self.predict_single(target)


def _initialise(module: nn.Module) -> None:
    """Truncated normal 0.02 for linears and biases, fan-out normal for convs.

    SegFormer begins with zero biases, but an exporter drops what adds zero, and a random model
    would then be faster than a trained one.
    """
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    elif isinstance(module, nn.Conv2d):
        fan_out = module.out_channels * math.prod(module.kernel_size) // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
    else:
        return
    if module.bias is not None:
        nn.init.trunc_normal_(module.bias, std=0.02)
