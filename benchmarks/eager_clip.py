"""The reference model as the paper's code runs it: each output encodes its references again."""

from typing import NamedTuple

import torch
from torch import Tensor

from mrcfa.backends import Arrays, Backend, Image
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.bundle.manifest import Output
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.methods import build_model
from mrcfa.model.schedule import references_at
from mrcfa.model.weights import load_weights


class Past(NamedTuple):
    """The frame number, and the network inputs that can still become references."""

    frame: int
    inputs: tuple[Tensor, ...]


class EagerClip(Backend):
    """The reference model on whole clips; no stage runs once per frame, so time has no parts."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        torch.set_num_threads(threads)
        self._network = build_model(bundle.config)
        load_weights(self._network, bundle.file(WEIGHTS))
        self.model = bundle.manifest
        self.name = "eager-clip (PyTorch, CPU, fp32)"

    def start(self) -> Past:
        return Past(0, ())

    @torch.no_grad()
    def timed_step(self, image: Image, state: Past) -> tuple[Arrays, Past, dict[str, float]]:
        config = self.model.config
        known = (*state.inputs, network_input(self.model.input.to_rgb(image), config.size))
        first = state.frame + 1 - len(known)
        chosen = [known[t - first] for t in references_at(state.frame, config.references)]
        logits = self._network(torch.stack([*chosen, known[-1]], dim=1))
        after = Past(state.frame + 1, known[max(0, len(known) - config.depth) :])
        if self.model.output is Output.LOGITS:
            return {"logits": logits[0].numpy()}, after, {}
        return {"mask": full_size_mask(logits, config.size, self.model.frame)}, after, {}
