"""Parity check of an export: each pair of graphs in ONNX Runtime against the reference model."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.onnx_graph import logits_name
from export.ort_cpu.turns import brought_out
from mrcfa.data.synthetic import drifting_clip
from mrcfa.manifest import STATE, Limits, Output
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.segformer import SegFormer
from mrcfa.model.streaming import Memory, decode_next
from mrcfa.parity import Parity

SHORTEST_CLIP = 12


class Proof(NamedTuple):
    """Two files that together are to compute the model."""

    encoder: Path
    decoder: Path
    classes_last: bool
    limits: Limits


class Proven(NamedTuple):
    parities: dict[str, Parity]
    masks: NDArray[np.uint8]
    """(T, h, w): the reference's, of the built-in clip."""


def check_graphs(
    model: SegFormer,
    frame: tuple[int, int],
    output: Output,
    streams: int,
    proofs: Mapping[str, Proof],
    progress: Callable[[str], None],
) -> Proven:
    """Run each encoder with its decoder through cold start and into the steady state.

    Every stream sees the whole clip, and begins one round after the stream before it.
    """
    graphs = {name: _Graphs(proof, output) for name, proof in proofs.items()}
    parities = {name: Parity(proof.limits) for name, proof in proofs.items()}
    clip = drifting_clip(max(SHORTEST_CLIP, model.config.depth + 2), frame)
    rounds = chain(_reference(model, clip, frame), repeat(None, streams - 1))
    masks = []
    due: deque[_Answer | None] = deque(maxlen=streams)
    """What the reference says to the streams' frames of this round."""
    for number, answer in enumerate(rounds):
        progress(f"checking frame {number + 1} of {len(clip) + streams - 1}")
        due.appendleft(answer)
        if answer is not None:
            masks.append(answer.mask)
        images = clip[np.clip(number - np.arange(streams), 0, len(clip) - 1)]
        for name, both in graphs.items():
            if number < streams:
                both.reset(number)
            for wanted, found in zip(due, both.step(images), strict=False):
                if wanted is not None:
                    parities[name].add_logits(found.logits, wanted.logits)
                    if found.mask is not None:
                        parities[name].add_masks(found.mask, wanted.mask)
    return Proven(parities, np.stack(masks))


class _Answer(NamedTuple):
    logits: np.ndarray
    """(classes, H/4, W/4)."""
    mask: Any
    """(h, w), or None of a graph without a mask."""


@torch.no_grad()
def _reference(
    model: SegFormer, clip: NDArray[np.uint8], frame: tuple[int, int]
) -> Iterator[_Answer]:
    memory = Memory()
    for image in clip:
        features = model.encode(network_input(image, model.config.size))
        logits, memory = decode_next(model, features, memory)
        yield _Answer(logits[0].numpy(), full_size_mask(logits, model.config.size, frame))


class _Graphs:
    """Two sessions and the state; the logits inside a mask graph are brought out beside it."""

    def __init__(self, proof: Proof, output: Output) -> None:
        graph = onnx.load(proof.decoder)
        self._classes_last = proof.classes_last and output is Output.MASK
        self._logits = logits_name(self._classes_last)
        if output is Output.MASK:
            graph = brought_out(graph, self._logits)
        self._encoder = _session(str(proof.encoder))
        self._decoder = _session(graph.SerializeToString())
        self._state = {
            value.name: np.zeros(value.shape, _NUMPY[value.type])
            for value in self._decoder.get_inputs()
            if value.name in STATE
        }

    def reset(self, stream: int) -> None:
        """Let a stream forget all it saw."""
        self._state["frame"][stream] = 0

    def step(self, images: NDArray[np.uint8]) -> Iterator[_Answer]:
        """One round (B, h, w, 3), stream by stream."""
        features = _run(self._encoder, {"image": images})
        answer = _run(self._decoder, {**features, **self._state})
        self._state = {name: answer[f"{name}_out"] for name in self._state}
        logits = answer[self._logits]
        logits = logits.reshape(len(images), *logits.shape[-3:])
        if self._classes_last:
            logits = logits.transpose(0, 3, 1, 2)
        return map(_Answer, logits, answer.get("mask", repeat(None)))


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int32)": np.int32,
}


def _run(session: ort.InferenceSession, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def _session(model: str | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # as the backend does
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
