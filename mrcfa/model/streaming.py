"""The reference model, a frame at a time: what a frame answers is kept for those that follow."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mrcfa.model.schedule import references_at
from mrcfa.model.segformer import Features, SegFormer


class Memory(NamedTuple):
    """How many frames there were, and what the last ones answer with, oldest first."""

    frame: int = 0
    references: tuple[Any, ...] = ()


@torch.no_grad()
def remember(model: SegFormer, features: Features, memory: Memory) -> Memory:
    """The memory with a further frame: the last, which may refer to itself, and `depth` before."""
    known = (*memory.references, model.answer(features))
    return Memory(memory.frame + 1, known[-1 - model.config.depth :])


@torch.no_grad()
def decode_next(
    model: SegFormer, features: Features, memory: Memory, alone: bool = False
) -> tuple[Tensor, Memory]:
    """A frame's logits (1, classes, H/4, W/4), and the memory for the next one.

    With `alone` the single-frame head answers, and the frame is remembered all the same.
    """
    memory = remember(model, features, memory)
    if alone:
        return model.predict_single(features), memory
    first = memory.frame - len(memory.references)
    numbers = references_at(memory.frame - 1, model.config.references)
    references = [memory.references[number - first] for number in numbers]
    return model.decode(model.ask(features), references), memory
