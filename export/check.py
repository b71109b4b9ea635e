"""Parity check of an export: each pair of graphs in ONNX Runtime against the reference model."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import helper

from export.onnx_graph import logits_name
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
    proofs: Mapping[str, Proof],
    progress: Callable[[str], None],
) -> Proven:
    """Run each encoder with its decoder through cold start and into the steady state."""
    streams = {name: _GraphStream(proof, output) for name, proof in proofs.items()}
    parities = {name: Parity(proof.limits) for name, proof in proofs.items()}
    clip = drifting_clip(max(SHORTEST_CLIP, model.config.depth + 2), frame)
    masks = []
    for number, logits in enumerate(_reference_logits(model, clip)):
        progress(f"checking frame {number + 1} of {len(clip)}")
        masks.append(full_size_mask(logits, model.config.size, frame))
        for name, stream in streams.items():
            found, mask = stream.step(clip[number])
            parities[name].add_logits(found, logits.numpy())
            if mask is not None:
                parities[name].add_masks(mask, masks[-1])
    return Proven(parities, np.stack(masks))


@torch.no_grad()
def _reference_logits(model: SegFormer, clip: NDArray[np.uint8]) -> Iterator[torch.Tensor]:
    memory = Memory()
    for image in clip:
        features = model.encode(network_input(image, model.config.size))
        logits, memory = decode_next(model, features, memory)
        yield logits


class _GraphStream:
    """Two sessions and the state; the logits inside a mask graph are brought out beside it."""

    def __init__(self, proof: Proof, output: Output) -> None:
        graph = onnx.load(proof.decoder)
        self._classes_last = proof.classes_last and output is Output.MASK
        self._logits = logits_name(self._classes_last)
        if output is Output.MASK:
            kind = graph.graph.input[0].type.tensor_type.elem_type
            graph.graph.output.append(helper.make_tensor_value_info(self._logits, kind, None))
        self._encoder = _session(str(proof.encoder))
        self._decoder = _session(graph.SerializeToString())
        self._state = {
            value.name: np.zeros(value.shape, _NUMPY[value.type])
            for value in self._decoder.get_inputs()
            if value.name in STATE
        }

    def step(self, image: NDArray[np.uint8]) -> tuple[np.ndarray, np.ndarray | None]:
        """Logits (1, classes, H/4, W/4), and the mask (h, w) of a mask graph."""
        features = _run(self._encoder, {"image": image[None]})
        answer = _run(self._decoder, {**features, **self._state})
        self._state = {name: answer[f"{name}_out"] for name in self._state}
        logits = answer[self._logits]
        if self._classes_last:
            logits = logits.transpose(0, 3, 1, 2)
        return logits, answer["mask"][0] if "mask" in answer else None


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
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
