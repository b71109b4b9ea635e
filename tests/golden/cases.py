"""The golden weights and clips as torch sees them."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import torch
from fill import fill

from mrcfa.model.config import MEAN, STD

GOLDEN = Path(__file__).parent


def authors_layout(backbone: str) -> dict[str, tuple[int, ...]]:
    """The shape of every entry of the authors' checkpoint."""
    layouts = json.loads((GOLDEN / "checkpoint_keys.json").read_text())
    return {key: tuple(shape) for key, shape in layouts[backbone].items()}


def authors_state(
    backbone: str, seed: int = 0, depths: tuple[int, ...] | None = None
) -> dict[str, torch.Tensor]:
    """A state dict in the authors' layout, filled by formula; with `depths` of the first blocks."""
    return {
        key: value.clone()
        for key, value in _filled(backbone, seed).items()
        if depths is None or _is_within(key, depths)
    }


@functools.cache
def _filled(backbone: str, seed: int) -> dict[str, torch.Tensor]:
    return {
        key: torch.from_numpy(np.asarray(fill(key, shape, seed)))
        for key, shape in authors_layout(backbone).items()
    }


def _is_within(key: str, depths: tuple[int, ...]) -> bool:
    """True unless the key belongs to a block past its stage's depth: `backbone.block2.1.norm1`."""
    block = re.match(r"backbone\.block(\d)\.(\d+)\.", key)
    return block is None or int(block[2]) < depths[int(block[1]) - 1]


def normalised(frames: np.ndarray) -> torch.Tensor:
    """uint8 (T, H, W, 3) -> float (1, T, 3, H, W)."""
    clip = (torch.from_numpy(frames).float() - torch.tensor(MEAN)) / torch.tensor(STD)
    return clip.permute(0, 3, 1, 2).unsqueeze(0)
