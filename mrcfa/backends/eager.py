"""The reference model itself, streamed: what every other backend is measured against."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mrcfa.backends import Arrays, Backend, Image
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.config import MEAN, STD
from mrcfa.errors import MrcfaError
from mrcfa.model import MRCFA, Features, Reference
from mrcfa.schedule import references_at
from mrcfa.weights import load_weights

AUTHORS_COLD_START = 3
"""The authors answer frames before this one with the single-frame prediction."""


class Memory(NamedTuple):
    """The frame number and what the last frames answer with, oldest first."""

    frame: int
    references: tuple[Reference, ...]


class EagerBackend(Backend):
    """`cold_start="single"`: the first frames take the single-frame head, as the authors do."""

    def __init__(self, bundle: Bundle, cold_start: str = "stream", threads: int = 0) -> None:
        if cold_start not in ("stream", "single"):
            raise MrcfaError(f"unknown cold start {cold_start!r}; choose stream or single")
        if threads:
            torch.set_num_threads(threads)
        self._model = MRCFA(bundle.config)
        load_weights(self._model, bundle.file(WEIGHTS))
        self._manifest, self._cold_start = bundle.manifest, cold_start
        self.name = "eager (PyTorch, CPU, fp32)"

    def start(self) -> Memory:
        return Memory(0, ())

    @torch.no_grad()
    def encode(self, image: Image) -> Features:
        return self._model.encode(network_input(image, self._manifest.config.size))

    @torch.no_grad()
    def decode(self, features: Features, state: Memory) -> tuple[Arrays, Memory]:
        model, offsets = self._model, self._manifest.config.references
        known = (*state.references, model.answer(features))
        first = state.frame + 1 - len(known)
        if self._cold_start == "single" and state.frame < AUTHORS_COLD_START:
            logits = model.predict_single(features)
        else:
            chosen = [known[t - first] for t in references_at(state.frame, offsets)]
            logits = model.decode(model.ask(features), chosen)
        return self._answer(logits), Memory(state.frame + 1, known[-max(offsets) :])

    def _answer(self, logits: Tensor) -> Arrays:
        if self._manifest.output == "logits":
            return {"logits": logits[0].numpy()}
        return {"mask": full_size_mask(logits, self._manifest.config.size, self._manifest.frame)}


def network_input(image: Image, size: tuple[int, int]) -> Tensor:
    """uint8 (h, w, 3) -> normalised (1, 3, H, W): bilinear, half-pixel, no antialias."""
    pixels = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0).float()
    if tuple(pixels.shape[2:]) != size:
        pixels = F.interpolate(pixels, size=size, mode="bilinear", align_corners=False)
    return (pixels - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)


def full_size_mask(logits: Tensor, size: tuple[int, int], frame: tuple[int, int]) -> Image:
    """(1, classes, H/4, W/4) -> uint8 (h, w): logits are resized, first to H×W, before argmax."""
    for target in (size, frame):
        if tuple(logits.shape[2:]) != target:
            logits = F.interpolate(logits, size=target, mode="bilinear", align_corners=False)
    mask: Image = logits.argmax(dim=1)[0].to(torch.uint8).numpy().astype(np.uint8, copy=False)
    return mask
