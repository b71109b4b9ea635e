"""The bundle's ONNX graphs in ONNX Runtime: CPU, or CUDA and TensorRT where they really load."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from mrcfa.backends import Arrays, Backend, Image, Unfit
from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError, named

ort.disable_telemetry_events()

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


class OnnxRuntimeBackend(Backend):
    """`variant` picks the execution provider; without one, CUDA if it loads, else the CPU.

    TensorRT's provider compiles for minutes at its first start, so it runs only when asked for.
    """

    def __init__(
        self,
        bundle: Bundle,
        variant: str | None = None,
        precision: str | None = None,
        threads: int = 0,
    ) -> None:
        if variant is not None and variant not in PROVIDERS:
            raise MrcfaError(f"unknown provider {variant!r}; choose one of {named(PROVIDERS)}")
        self._bundle, self._threads = bundle, threads
        provider = variant or self._loadable()
        if precision is None:
            preferred = "fp32" if provider == "cpu" else "fp16"
            graphs = bundle.manifest.graphs
            precision = preferred if preferred in graphs else next(iter(graphs))
        self._encoder = self._session(precision, "encoder", provider)
        self._decoder = self._session(precision, "decoder", provider)
        self._memory = next(
            spec for spec in bundle.graph(precision, "decoder").inputs if spec.name == "memory"
        )
        self._features = [value.name for value in self._encoder.get_outputs()]
        self._answer = bundle.manifest.output
        self.name = f"onnxruntime ({provider.upper()}, {precision})"

    def start(self) -> Arrays:
        return {
            "memory": np.zeros(self._memory.shape, self._memory.dtype),
            "frame": np.zeros(1, np.int32),
        }

    def encode(self, image: Image) -> Arrays:
        return dict(
            zip(self._features, self._encoder.run(None, {"image": image[None]}), strict=True)
        )

    def decode(self, features: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
        names = [self._answer, "memory_out", "frame_out"]
        answer, memory, frame = self._decoder.run(names, {**features, **state})
        return {self._answer: answer[0]}, {"memory": memory, "frame": frame}

    def _loadable(self) -> str:
        return "cuda" if PROVIDERS["cuda"] in ort.get_available_providers() else "cpu"

    def _session(self, precision: str, part: str, provider: str) -> Any:
        graph = self._bundle.graph(precision, part)
        path = self._bundle.file(graph.file)  # checked in any case: a bundle is whole or refused
        if graph.cpu is not None and provider == "cpu":
            path = self._bundle.file(graph.cpu)
        return open_session(path, provider, self._threads)


def open_session(path: Path, provider: str, threads: int) -> Any:
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
        session = ort.InferenceSession(str(path), options, providers=[wanted])
    except Exception as error:  # ONNX Runtime raises a family of unrelated types
        raise MrcfaError(f"ONNX Runtime cannot load {path}: {error}") from None
    if session.get_providers()[0] != wanted:
        raise Unfit(
            f"ONNX Runtime cannot use its {wanted} here; choose onnxruntime:cpu, "
            'or install: pip install "mrcfa[gpu]"'
        )
    return session
