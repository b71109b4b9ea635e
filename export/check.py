"""The proof after the export: every graph in ONNX Runtime against the reference model."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper

from mrcfa.backends.eager import full_size_mask, network_input
from mrcfa.bundle import Graph
from mrcfa.model import MRCFA, Reference
from mrcfa.parity import Parity
from mrcfa.schedule import references_at
from mrcfa.synthetic import drifting_clip


def check_graphs(
    model: MRCFA,
    frame: tuple[int, int],
    output: str,
    folder: Path,
    graphs: Mapping[str, Mapping[str, Graph]],
    progress: Callable[[str], None],
) -> dict[str, Parity]:
    """Run each precision's encoder and decoders through cold start and into the steady state."""
    streams = {name: _GraphStream(folder, parts, output) for name, parts in graphs.items()}
    parities = {name: Parity(name) for name in graphs}
    clip = drifting_clip(max(model.config.references) + 2, frame)
    for number, logits in enumerate(_reference_logits(model, clip)):
        progress(f"checking frame {number + 1} of {len(clip)}")
        mask = full_size_mask(logits, model.config.size, frame) if output == "mask" else None
        for name, stream in streams.items():
            for answer in stream.step(clip[number]):
                found = answer["logits"]  # inside a mask graph for CPUs, classes are the last axis
                if found.shape != logits.shape:
                    found = found.transpose(0, 3, 1, 2)
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
    """An encoder, its decoders and their state.

    The logits inside a mask graph are brought out beside it.
    """

    def __init__(self, folder: Path, parts: Mapping[str, Graph], output: str) -> None:
        decoder = parts["decoder"]
        files = [decoder.file] if decoder.cpu is None else [decoder.file, decoder.cpu]
        graphs = [onnx.load(folder / file) for file in files]
        if output == "mask":
            for graph in graphs:
                kind = graph.graph.input[0].type.tensor_type.elem_type
                graph.graph.output.append(helper.make_tensor_value_info("logits", kind, None))
        self._encoder = _session(str(folder / parts["encoder"].file))
        self._decoders = [_session(graph.SerializeToString()) for graph in graphs]
        self._state = {
            spec.name: np.zeros(spec.shape, spec.dtype)
            for spec in decoder.inputs
            if spec.name in ("memory", "frame")
        }

    def step(self, image: np.ndarray) -> list[dict[str, np.ndarray]]:
        """What each decoder answers; the state goes on with the last one's."""
        features = _answers(self._encoder, {"image": image[None]})
        answers = [_answers(decoder, features | self._state) for decoder in self._decoders]
        self._state = {name: answers[-1][f"{name}_out"] for name in self._state}
        return answers


def _answers(
    session: ort.InferenceSession, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def _session(model: str | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
