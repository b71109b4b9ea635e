"""Proof of an export: each pair of graphs in ONNX Runtime is compared with the reference model."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from mrcfa.bundle.manifest import STATE, Limits, Output
from mrcfa.bundle.parity import Parity
from mrcfa.data.synthetic import built_in_clip
from mrcfa.errors import NotEqual
from mrcfa.export.onnx_graph import logits_name
from mrcfa.export.ort_cpu.scan import with_output
from mrcfa.export.reference import margins_noted, refined_quickly
from mrcfa.export.slices import attention_in_slices
from mrcfa.machine.files import scratch_folder
from mrcfa.model.config import Config
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.input_format import RGB, InputFormat
from mrcfa.model.segformer import SegFormer
from mrcfa.model.streaming import Memory, decode_next, remember

SHORTEST_CLIP = 12
LARGE = 1 << 20
"""Pixels. The clip of a larger frame ends as soon as the state is steady."""
AFFINITIES = 1 << 31
"""The largest number of affinities at the finest scale that the compared frames have together. A
thousand million take a minute or two on two cores, in the model and in each pair of graphs."""


class Proof(NamedTuple):
    """Two files to be compared with the model, and their limits."""

    encoder: Path
    decoder: Path
    classes_last: bool
    limits: Limits
    resolution: float
    """The relative gap in importance below which the precision may keep the other of two tokens."""


class Proven(NamedTuple):
    parities: dict[str, Parity]
    frames: Sequence[int]
    """Numbers of the compared frames in the built-in clip."""
    masks: NDArray[np.uint8]
    """(T, h, w), the reference model's masks of these frames."""


def check_graphs(
    model: SegFormer,
    frame: tuple[int, int],
    output: Output,
    streams: int,
    proofs: Mapping[str, Proof],
    progress: Callable[[str], None],
    form: InputFormat = RGB,
) -> Proven:
    """Run each encoder with its decoder from cold start into the steady state.

    Every stream gets the whole clip and begins one round after the stream before it. The model and
    the pairs of graphs run one after the other, so that only one of them is in memory; the model's
    logits are kept on disk. Frames of a large clip that are not compared only enter the memory.
    """
    frames = compared_frames(model.config)
    clip = built_in_clip(frames[-1] + 1, frame, form)
    with scratch_folder() as folder:
        answers = [
            answer and answer.kept(folder / f"{number}.npy")
            for number, answer in enumerate(_reference(model, clip, form, frame, frames, progress))
        ]
        parities = {
            name: _parity(proof, output, clip, answers, streams, partial(_report, progress, name))
            for name, proof in proofs.items()
        }
    masks = np.stack([answer.mask for answer in answers if answer is not None])
    return Proven(parities, frames, masks)


def compared_frames(config: Config) -> list[int]:
    """All frames of the clip, or the first, the last and as many between as `AFFINITIES` allows."""
    steady = config.depth + 2
    length = steady if math.prod(config.size) > LARGE else max(SHORTEST_CLIP, steady)
    maps = len(config.references) * config.kept
    affordable = AFFINITIES // max(1, maps * config.tokens_at(config.output_stride))
    count = min(length, max(2, affordable))
    return [round(number * (length - 1) / (count - 1)) for number in range(count)]


def _parity(
    proof: Proof,
    output: Output,
    clip: NDArray[np.uint8],
    answers: Sequence["_Kept | None"],
    streams: int,
    report: Callable[[int, int], None],
) -> Parity:
    graphs, parity = _Graphs(proof, output), Parity(proof.limits)
    due: deque[_Kept | None] = deque(maxlen=streams)
    """The reference's answers to the streams' frames in this round."""
    rounds = [*answers, *[None] * (streams - 1)]
    for number, answer in enumerate(rounds):
        report(number + 1, len(rounds))
        due.appendleft(answer)
        images = clip[np.clip(number - np.arange(streams), 0, len(clip) - 1)]
        if number < streams:
            graphs.reset(number)
        if not any(due):
            graphs.remember(images)
            continue
        for wanted, found in zip(due, graphs.step(images), strict=False):
            if wanted is not None:
                certain = wanted.margin > proof.resolution
                parity.add_logits(found.logits, wanted.logits, certain)
                if found.mask is not None:
                    parity.add_masks(found.mask, wanted.mask)
    return parity


def _report(progress: Callable[[str], None], what: str, number: int, count: int) -> None:
    progress(f"checking {what}: frame {number} of {count}")


class _Answer(NamedTuple):
    logits: np.ndarray
    """(classes, H/4, W/4)."""
    mask: Any
    """(h, w), or None if the graph has no mask."""
    margin: float = math.inf
    """The smallest of `margins_noted`."""

    def kept(self, path: Path) -> "_Kept":
        np.save(path, self.logits)
        return _Kept(path, self.mask, self.margin)


class _Kept(NamedTuple):
    path: Path
    mask: NDArray[np.uint8]
    margin: float

    @property
    def logits(self) -> np.ndarray:
        return np.load(self.path)


@torch.no_grad()
def _reference(
    model: SegFormer,
    clip: NDArray[np.uint8],
    form: InputFormat,
    frame: tuple[int, int],
    compared: Sequence[int],
    progress: Callable[[str], None],
) -> Iterator[_Answer | None]:
    """The model's answer to each frame; None for frames that only enter the memory."""
    memory = Memory()
    for number, image in enumerate(clip):
        _report(progress, "the model", number + 1, len(clip))
        features = model.encode(network_input(form.to_rgb(image), model.config.size))
        if number not in compared:
            memory = remember(model, features, memory)
            yield None
            continue
        with refined_quickly(model), margins_noted(model) as margins:
            logits, memory = decode_next(model, features, memory)
        mask = full_size_mask(logits, model.config.size, frame)
        yield _Answer(logits[0].numpy(), mask, min(margins, default=math.inf))


class _Graphs:
    """Two sessions and the state. The logits inside a mask graph are an output as well."""

    def __init__(self, proof: Proof, output: Output) -> None:
        graph = onnx.load(proof.decoder)
        self._classes_last = proof.classes_last and output is Output.MASK
        self._logits = logits_name(self._classes_last)
        if output is Output.MASK:
            graph = with_output(graph, self._logits)
        encoder = attention_in_slices(onnx.load(proof.encoder))
        self._encoder = _session(encoder.SerializeToString())
        self._decoder = _session(graph.SerializeToString())
        self._state = {
            value.name: np.zeros(value.shape, _NUMPY[value.type])
            for value in self._decoder.get_inputs()
            if value.name in STATE
        }

    def reset(self, stream: int) -> None:
        """Start a stream again at frame 0."""
        self._state["frame"][stream] = 0

    def remember(self, images: NDArray[np.uint8]) -> dict[str, np.ndarray]:
        """Add one round of frames, B of them, to the memory; the encoder's outputs."""
        features = _run(self._encoder, {"image": images})
        known = {"frame": self._state["frame"] + 1}
        if "memory" in self._state:
            memory = [self._state["memory"][:, 1:], features["entry"][:, None]]
            known["memory"] = np.concatenate(memory, axis=1)
        self._state = known
        return features

    def step(self, images: NDArray[np.uint8]) -> Iterator[_Answer]:
        """The answer to each stream's frame in one round."""
        before = self._state
        features = self.remember(images)
        answer = _run(self._decoder, {**features, **before})
        for name, wanted in self._state.items():
            if answer[f"{name}_out"].tobytes() != wanted.tobytes():
                raise NotEqual(f"the exported graphs are not the model: {name}_out is not exact")
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
    options.enable_mem_pattern = False  # patterns hold more
    options.enable_cpu_mem_arena = False  # and so does what it keeps for the next run
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # as the backend does
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
