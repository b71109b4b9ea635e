"""Frame-by-frame inference with the reference model; a memory holds the references."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mrcfa.model.schedule import references_at
from mrcfa.model.segformer import Features, SegFormer


class Memory(NamedTuple):
    """The number of frames so far, and the last of them as references, oldest first."""

    frame: int = 0
    references: tuple[Any, ...] = ()


@torch.no_grad()
def remember(model: SegFormer, features: Features, memory: Memory) -> Memory:
    """The memory after one more frame: that frame and the `depth` frames before it."""
    known = (*memory.references, model.as_reference(features))
    return Memory(memory.frame + 1, known[-1 - model.config.depth :])


@torch.no_grad()
def decode_next(
    model: SegFormer, features: Features, memory: Memory, alone: bool = False
) -> tuple[Tensor, Memory]:
    """Logits (1, classes, H/4, W/4) of the next frame, and the memory after it.

    With `alone`, the logits come from the single-frame head; the memory is updated as usual.
    """
    memory = remember(model, features, memory)
    if alone:
        return model.predict_single(features), memory
    first = memory.frame - len(memory.references)
    numbers = references_at(memory.frame - 1, model.config.references)
    references = [memory.references[number - first] for number in numbers]
    return model.decode(model.as_target(features), references), memory
