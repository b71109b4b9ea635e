"""The reference model, streamed. All other backends are measured against it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mrcfa.backends import Arrays, Image, Options, TwoGraphs
from mrcfa.backends.records import ColdStart
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.bundle.manifest import Output
from mrcfa.errors import InvalidValue
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.methods import build_model
from mrcfa.model.segformer import Features
from mrcfa.model.streaming import Memory, decode_next
from mrcfa.model.weights import load_weights

AUTHORS_COLD_START = 3
"""The authors use the single-frame prediction for the frames before this one."""

Rows = tuple[Memory, ...]


class EagerBackend(TwoGraphs):
    """The model's own encoder and decoder in PyTorch, with the bundle's weights."""

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        if which:
            raise InvalidValue(f"eager runs on the CPU alone; choose it without {which!r}")
        if options.threads:
            torch.set_num_threads(options.threads)
        self._network = build_model(bundle.config)
        load_weights(self._network, bundle.file(WEIGHTS))
        self.model, self._cold_start = bundle.manifest, options.cold_start
        self.name = "eager (PyTorch, CPU, fp32)"

    def start(self) -> Rows:
        return (Memory(),) * self.model.streams

    @torch.no_grad()
    def encode(self, image: Image) -> Features:
        rgb = self.model.input.to_rgb(image)
        return self._network.encode(network_input(rgb, self.model.config.size))

    def decode(self, features: Features, state: Rows) -> tuple[Arrays, Rows]:
        memory, *others = state
        alone = self._cold_start is ColdStart.SINGLE and memory.frame < AUTHORS_COLD_START
        logits, memory = decode_next(self._network, features, memory, alone)
        return self._answer(logits), (memory, *others)

    def step_all(
        self, images: Sequence[Image | None], state: Rows
    ) -> tuple[list[Arrays | None], Rows]:
        """Compute one row after the other: this is the reference, so it needs no speed."""
        answers: list[Arrays | None] = [None] * len(images)
        rows = list(state)
        for row, image in enumerate(images):
            if image is not None:
                answers[row], (rows[row],) = self.step(image, (rows[row],))
        return answers, tuple(rows)

    def restart(self, row: int, state: Rows) -> Rows:
        return (*state[:row], Memory(), *state[row + 1 :])

    def _answer(self, logits: Tensor) -> Arrays:
        if self.model.output is Output.LOGITS:
            return {"logits": logits[0].numpy()}
        return {"mask": full_size_mask(logits, self.model.config.size, self.model.frame)}
