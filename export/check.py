"""The proof after the export: every graph in ONNX Runtime against the reference model."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper

from export.onnx_graph import LOGITS_LAST, inner_logits
from mrcfa.backends.eager import full_size_mask, network_input
from mrcfa.model import MRCFA, Reference
from mrcfa.parity import Parity
from mrcfa.schedule import references_at
from mrcfa.synthetic import drifting_clip


class Proof(NamedTuple):
    """Two files that together are to compute the model."""

    precision: str
    encoder: Path
    decoder: Path


def check_graphs(
    model: MRCFA,
    frame: tuple[int, int],
    output: str,
    proofs: Mapping[str, Proof],
    progress: Callable[[str], None],
) -> dict[str, Parity]:
    """Run each encoder with its decoder through cold start and into the steady state."""
    streams = {
        name: _GraphStream(proof.encoder, proof.decoder, output) for name, proof in proofs.items()
    }
    parities = {name: Parity(proof.precision) for name, proof in proofs.items()}
    clip = drifting_clip(max(model.config.references) + 2, frame)
    for number, logits in enumerate(_reference_logits(model, clip)):
        progress(f"checking frame {number + 1} of {len(clip)}")
        mask = full_size_mask(logits, model.config.size, frame) if output == "mask" else None
        for name, stream in streams.items():
            answer = stream.step(clip[number])
            found = answer.get("logits")
            if found is None:
                found = answer[LOGITS_LAST].transpose(0, 3, 1, 2)
            parities[name].add_logits(found, logits.numpy())
            if mask is not None:
                parities[name].add_masks(answer["mask"][0], mask)
    return parities


@torch.no_grad()
def _reference_logits(model: MRCFA, clip: np.ndarray) -> Iterator[torch.Tensor]:
    answers: list[Reference] = []
    for number, image in enumerate(clip):
        features = model.encode(network_input(image, model.config.size))
        answers.append(model.answer(features))
        chosen = [answers[t] for t in references_at(number, model.config.references)]
        yield model.decode(model.ask(features), chosen)


class _GraphStream:
    """Two sessions and the state; the logits inside a mask graph are brought out beside it."""

    def __init__(self, encoder: Path, decoder: Path, output: str) -> None:
        graph = onnx.load(decoder)
        if output == "mask":
            kind = graph.graph.input[0].type.tensor_type.elem_type
            inner = helper.make_tensor_value_info(inner_logits(graph.graph), kind, None)
            graph.graph.output.append(inner)
        self._encoder = _session(str(encoder))
        self._decoder = _session(graph.SerializeToString())
        self._state = {
            value.name: np.zeros(value.shape, _NUMPY[value.type])
            for value in self._decoder.get_inputs()
            if value.name in ("memory", "frame")
        }

    def step(self, image: np.ndarray) -> dict[str, np.ndarray]:
        names = [value.name for value in self._encoder.get_outputs()]
        features = dict(zip(names, self._encoder.run(None, {"image": image[None]}), strict=True))
        names = [value.name for value in self._decoder.get_outputs()]
        answer = dict(zip(names, self._decoder.run(None, {**features, **self._state}), strict=True))
        self._state = {"memory": answer["memory_out"], "frame": answer["frame_out"]}
        return answer


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int32)": np.int32,
}


def _session(model: str | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
