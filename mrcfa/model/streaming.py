"""The reference model, a frame at a time: what a frame answers is kept for those that follow."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mrcfa.model.schedule import references_at
from mrcfa.model.segformer import Features, SegFormer


class Memory(NamedTuple):
    """The frame number and what the last frames answer with, oldest first."""

    frame: int = 0
    references: tuple[Any, ...] = ()


@torch.no_grad()
def decode_next(
    model: SegFormer, features: Features, memory: Memory, alone: bool = False
) -> tuple[Tensor, Memory]:
    """A frame's logits (1, classes, H/4, W/4), and the memory for the next one.

    With `alone` the single-frame head answers, and the frame is remembered all the same.
    """
    known = (*memory.references, model.answer(features))
    first = memory.frame + 1 - len(known)
    if alone:
        logits = model.predict_single(features)
    else:
        numbers = references_at(memory.frame, model.config.references)
        logits = model.decode(model.ask(features), [known[t - first] for t in numbers])
    kept = known[max(0, len(known) - model.config.depth) :]
    return logits, Memory(memory.frame + 1, kept)
