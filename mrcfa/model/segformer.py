"""SegFormer, which segments single frames: the base of MRCFA, and its single-frame baseline."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mrcfa.model.config import FEATURE_CHANNELS, Config
from mrcfa.model.fusion import Fusion
from mrcfa.model.mit import MiT


class Features(NamedTuple):
    """Features of one frame: the stages c1…c4 and the fused F (B, 256, H/4, W/4)."""

    stages: tuple[Tensor, ...]
    fused: Tensor

    def split(self, batch: int) -> "list[Features]":
        """The features frame by frame, for a batch of clips whose frames were encoded together."""
        parts = zip(*(tensor.split(batch) for tensor in (*self.stages, self.fused)), strict=True)
        return [Features(tuple(stages), fused) for *stages, fused in parts]


class SegFormer(nn.Module):
    """Encoder, fusion and `linear_pred`; a frame has no references.

    `as_target`, `as_reference` and `decode` are the steps of a stream, which temporal models
    override.
    """

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(config)
            self.apply(_initialise)
        # Convolutions on CPUs are several times faster in this layout.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()

    def _build(self, config: Config) -> None:
        self.encoder = MiT(config.widths, config.depths)
        self.fusion = Fusion(config.widths)
        self.linear_pred = nn.Conv2d(FEATURE_CHANNELS, config.classes, 1)

    def forward(self, clip: Tensor) -> Tensor:
        """Logits (B, classes, H/4, W/4) of the last frame of a normalised clip (B, T, 3, H, W)."""
        return self.predict_single(self.encode(clip[:, -1]))

    def encode(self, frames: Tensor) -> Features:
        """Features of normalised frames (B, 3, H, W)."""
        stages = self.encoder(frames)
        return Features(stages, self.fusion(stages))

    def predict_single(self, features: Features) -> Tensor:
        """Single-frame logits, which the authors use for frames without references."""
        logits: Tensor = self.linear_pred(features.fused)
        return logits

    def as_target(self, features: Features) -> Any:
        """The frame as `decode` needs it to segment it."""
        return features

    def as_reference(self, features: Features) -> Any:
        """The frame as `decode` needs it for later frames; kept in the stream's memory."""
        return None

    def decode(self, target: Any, references: list[Any]) -> Tensor:
        """Logits (B, classes, H/4, W/4) of the target."""
        return self.predict_single(target)


def _initialise(module: nn.Module) -> None:
    """Initialise linears and biases by a truncated normal (0.02), convs by a fan-out normal.

    SegFormer starts with zero biases. An exporter removes additions of zero, so a random model
    would be faster than a trained one.
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
