"""The bundle's ONNX graphs in ONNX Runtime: CPU, or CUDA and TensorRT where they really load."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Image, Options, TwoGraphs
from mrcfa.bundle import Bundle, Unfit
from mrcfa.errors import MrcfaError, named
from mrcfa.manifest import STATE, Device

ort.disable_telemetry_events()

Values = dict[str, Any]
"""ONNX Runtime's own tensors by name."""

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


class OnnxRuntimeBackend(TwoGraphs):
    """`which` is the execution provider; without one, CUDA if it loads, else the CPU.

    TensorRT's provider compiles for minutes at its first start, so it runs only when asked for.
    Features and state stay where they are computed: only frames and answers pass the host.
    """

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        if which and which not in PROVIDERS:
            raise MrcfaError(f"unknown provider {which!r}; choose one of {named(PROVIDERS)}")
        provider = which or _loadable(bundle, options.precision)
        self._on_cpu = provider == "cpu"
        variant = bundle.variant(Device.CPU if self._on_cpu else Device.GPU, options.precision)
        self._place = ("cpu", 0) if self._on_cpu else ("cuda", options.device)
        self._encoder, self._decoder = (
            open_session(bundle.file(graph.file), provider, options.threads, options.device)
            for graph in variant.graphs.values()
        )
        self._state = [spec for spec in variant.decoder.inputs if spec.name in STATE]
        self._features = [value.name for value in self._encoder.get_outputs()]
        self._answer = bundle.manifest.output.value
        self.name = f"onnxruntime ({provider.upper()}, {variant.precision})"

    def start(self) -> Values:
        return {spec.name: self._placed(np.zeros(spec.shape, spec.dtype)) for spec in self._state}

    def encode(self, image: Image) -> Values:
        return self._encoded(self._placed(image[None]))

    def decode(self, features: Values, state: Values) -> tuple[Arrays, Values]:
        answer, state = self._decoded(features, state)
        return {self._answer: answer.numpy()[0]}, state

    def timed_step(self, image: Image, state: Values) -> tuple[Arrays, Values, dict[str, float]]:
        """On a GPU with the copies told apart; every call returns when the GPU is done."""
        if self._on_cpu:
            return super().timed_step(image, state)
        marks = [perf_counter()]
        placed = self._placed(image[None])
        marks.append(perf_counter())
        features = self._encoded(placed)
        marks.append(perf_counter())
        answer, state = self._decoded(features, state)
        marks.append(perf_counter())
        outputs = {self._answer: answer.numpy()[0]}
        marks.append(perf_counter())
        parts = ("upload", "encoder", "decoder", "download")
        seconds = (after - before for before, after in pairwise(marks))
        return outputs, state, dict(zip(parts, seconds, strict=True))

    def _encoded(self, image: Any) -> Values:
        return self._run(self._encoder, {"image": image}, self._features)

    def _decoded(self, features: Values, state: Values) -> tuple[Any, Values]:
        names = (self._answer, *(f"{name}_out" for name in state))
        found = self._run(self._decoder, {**features, **state}, names)
        return found[self._answer], {name: found[f"{name}_out"] for name in state}

    def _run(self, session: Any, inputs: Values, outputs: Sequence[str]) -> Values:
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, *self._place)
        session.run_with_iobinding(binding)
        return dict(zip(outputs, binding.get_outputs(), strict=True))

    def _placed(self, array: NDArray[Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(array, *self._place)


def _loadable(bundle: Bundle, precision: str | None) -> str:
    has_cuda = PROVIDERS["cuda"] in ort.get_available_providers()
    return "cuda" if has_cuda and bundle.find_variant(Device.GPU, precision) else "cpu"


def open_session(path: Path, provider: str, threads: int, device: int = 0) -> Any:
    """A session on the provider asked for; ONNX Runtime itself falls back silently."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # patterns hold 200 MB more and win no time
    # Work in smaller blocks: a core that others slow down does not hold up the rest.
    options.add_session_config_entry("session.dynamic_block_base", "4")
    # Threads that wait for more work after a run would take the cores from the next session's.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    wanted = PROVIDERS[provider]
    try:
        session = ort.InferenceSession(
            str(path),
            options,
            providers=[wanted],
            provider_options=[{} if provider == "cpu" else {"device_id": str(device)}],
        )
    except Exception as error:  # ONNX Runtime raises a family of unrelated types
        raise MrcfaError(f"ONNX Runtime cannot load {path}: {error}") from None
    if session.get_providers()[0] != wanted:
        raise Unfit(
            f"ONNX Runtime cannot use its {wanted} here; choose onnxruntime:cpu, "
            'or install: pip install "mrcfa[gpu]"'
        )
    return session
