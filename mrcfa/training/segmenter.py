"""A segmenter in plain PyTorch, for checkpoints that have not been exported."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.errors import NotFound
from mrcfa.model.config import Config
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.methods import build_model
from mrcfa.model.streaming import Memory, decode_next
from mrcfa.model.weights import load_weights
from mrcfa.training.checkpoints import read_facts
from mrcfa.training.runs import BEST, checkpoint_of


class ModelSegmenter:
    """A stream with the reference model: frames in, masks out, on the CPU.

    With `single`, every mask comes from the single-frame head.
    """

    def __init__(
        self,
        config: Config,
        weights: Path,
        classes: tuple[str, ...],
        palette: tuple[tuple[int, int, int], ...],
        single: bool = False,
    ) -> None:
        self._model = build_model(config)
        load_weights(self._model, weights)
        self.classes, self._single = classes, single
        self.palette: NDArray[np.uint8] = np.array(palette, np.uint8)
        self.backend = "eager (PyTorch, CPU, fp32" + (", single frames)" if single else ")")
        self.reset()

    @classmethod
    def of_run(cls, run: Path, single: bool = False) -> "ModelSegmenter":
        """A segmenter with a run's best checkpoint, or with a checkpoint itself."""
        path = checkpoint_of(run)
        facts = read_facts(path) if path.is_file() else None
        if facts is None:
            raise NotFound(f"{run} is not a run of mrcfa train: it has no {BEST} with metadata")
        labels = facts.labels
        return cls(facts.config, path, labels.names, labels.colours, single)

    @classmethod
    def of_bundle(cls, bundle: Bundle, single: bool = False) -> "ModelSegmenter":
        """A segmenter with the weights of a bundle."""
        manifest = bundle.manifest
        weights = bundle.file(WEIGHTS)
        return cls(bundle.config, weights, manifest.classes, manifest.palette, single)

    @property
    def config(self) -> Config:
        return self._model.config

    def reset(self) -> None:
        self._memory = Memory()

    @torch.no_grad()
    def __call__(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        features = self._model.encode(network_input(frame, self.config.size))
        if self._single:
            logits = self._model.predict_single(features)
        else:
            logits, self._memory = decode_next(self._model, features, self._memory)
        return full_size_mask(logits, self.config.size, (frame.shape[0], frame.shape[1]))
