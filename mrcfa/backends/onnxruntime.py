"""The backend that runs a bundle's ONNX graphs in ONNX Runtime, on a CPU or a GPU."""

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Image, Options, TwoGraphs, webgpu
from mrcfa.backends.fitting import chosen_device
from mrcfa.backends.records import BACKENDS, Place
from mrcfa.backends.webgpu import in_turn
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.manifest import STATE, Device
from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError, RuntimeFailed, Unsupported, named
from mrcfa.machine import hardware
from mrcfa.machine.extras import install_command
from mrcfa.machine.vulkan import vulkan_devices

Values = dict[str, Any]
"""Tensors of ONNX Runtime by name."""

RECORD = BACKENDS["onnxruntime"]
PROVIDERS = {place.name: place.runtime_name for place in RECORD.places}


class OnnxRuntimeBackend(TwoGraphs):
    """The graphs with one execution provider, which `which` names.

    Without a name it is the first of CUDA, WebGPU and the CPU that loads here, with a warning if a
    GPU does not; a software adapter of WebGPU and TensorRT's provider, which compiles for minutes
    at its first start, run only if they are named. Features and state stay on the device; only
    frames and outputs are copied.
    """

    turn: AbstractContextManager[Any] = nullcontext()
    """Held while the device is used, if it takes one thread at a time."""
    _values: type[Values] = dict

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        on_cpu = RECORD.place("cpu")
        reasons: list[str] = []
        for place in _preferred(bundle, options.precision) if not which else []:
            try:
                self._open(bundle, place, options)
                break
            except Unfit as error:
                if options.strict:
                    raise Unsupported(str(error)) from None
                reasons.append(str(error))
        else:
            place = RECORD.place(which) if which else on_cpu
            self._open(bundle, place, options)
        if reasons:
            warn(f"{'; '.join(reasons)}; ONNX Runtime goes on with {place.shown}")

    def _open(self, bundle: Bundle, place: Place, options: Options) -> None:
        self.model, self.on_gpu = bundle.manifest, place.device is Device.GPU
        precision, where, device = options.precision, place.shown, 0
        if place.library:
            self.turn, self._values = webgpu.TURN, webgpu.Buffers
            adapter = webgpu.adapter()
            precision = _precision_on(adapter, bundle, options)
            where = f"{where}, {adapter}"
        elif self.on_gpu:
            device = chosen_device(options.device, hardware.current_gpu(), len(hardware.gpus()))
        variant = bundle.variant(place.device, precision)
        self._place = (place.memory, device)
        with self.turn:
            self._encoder, self._decoder = (
                open_session(
                    bundle.read_graph(graph),
                    bundle.path / graph.file,
                    place.name,
                    options.threads,
                    device,
                    options.strict,
                )
                for graph in variant.graphs.values()
            )
        self.streams = bundle.manifest.streams
        self._state = [spec for spec in variant.decoder.inputs if spec.name in STATE]
        self._features = [value.name for value in self._encoder.get_outputs()]
        self._answer = bundle.manifest.output.value
        self.name = f"onnxruntime ({where}, {variant.precision})"

    def __del__(self) -> None:
        with self.turn:
            self._encoder = self._decoder = None

    @in_turn
    def start(self) -> Values:
        try:
            zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self._state}
        except MemoryError as error:
            raise RuntimeFailed(
                f"there is no memory for the state of {self.name}: {error}"
            ) from None
        return self._values({name: self._placed(array) for name, array in zeros.items()})

    @in_turn
    def encode(self, image: Image) -> Values:
        return self._encoded(self._placed(self._alike(image)))

    @in_turn
    def decode(self, features: Values, state: Values) -> tuple[Arrays, Values]:
        answer, state = self._decoded(features, state)
        return {self._answer: answer.numpy()[0]}, state

    @in_turn
    def timed_step(self, image: Image, state: Values) -> tuple[Arrays, Values, dict[str, float]]:
        """Copies to and from a GPU are timed separately: every call waits until the GPU is done."""
        if not self.on_gpu:
            return super().timed_step(image, state)
        marks = [perf_counter()]
        placed = self._placed(self._alike(image))
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

    @in_turn
    def step_all(
        self, images: Sequence[Image | None], state: Values
    ) -> tuple[list[Arrays | None], Values]:
        (some, *_) = (image for image in images if image is not None)
        every = np.stack([some if image is None else image for image in images])
        answer, after = self._decoded(self._encoded(self._placed(every)), state)
        found = answer.numpy()
        absent = [row for row, image in enumerate(images) if image is None]
        if absent:
            kept = {name: self._kept(state[name], after[name], absent) for name in state}
            after = self._values(kept)
        return [
            None if image is None else {self._answer: found[row]}
            for row, image in enumerate(images)
        ], after

    @in_turn
    def restart(self, row: int, state: Values) -> Values:
        numbers = state["frame"].numpy().copy()
        numbers[row] = 0
        return self._values({**state, "frame": self._placed(numbers)})

    def _kept(self, before: Any, after: Any, rows: list[int]) -> Any:
        """The state after a round, but rows without a frame as before; it is merged on the host."""
        merged = after.numpy().copy()
        merged[rows] = before.numpy()[rows]
        return self._placed(merged)

    def _alike(self, image: Image) -> NDArray[np.uint8]:
        """(B, h, w, 3)."""
        return image[None] if self.streams == 1 else np.stack([image] * self.streams)

    def _encoded(self, image: Any) -> Values:
        return self._run(self._encoder, {"image": image}, self._features)

    def _decoded(self, features: Values, state: Values) -> tuple[Any, Values]:
        names = (self._answer, *(f"{name}_out" for name in state))
        found = self._run(self._decoder, {**features, **state}, names)
        after = {name: found[f"{name}_out"] for name in state}
        return found[self._answer], self._values(after)

    def _run(self, session: Any, inputs: Values, outputs: Sequence[str]) -> Values:
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, *self._place)
        try:
            session.run_with_iobinding(binding)
        except Exception as error:  # of unrelated types; a GPU that went away, for one
            raise RuntimeFailed(f"ONNX Runtime stopped in mid-stream: {error}") from None
        return self._values(zip(outputs, binding.get_outputs(), strict=True))

    def _placed(self, array: NDArray[Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(array, *self._place)


def _precision_on(adapter: webgpu.Adapter, bundle: Bundle, options: Options) -> str:
    """The precision that was asked for, else FP16 where adapter and bundle have it, else FP32."""
    if options.device:
        raise Unfit(f"WebGPU takes the GPU by itself, here {adapter.name}; leave the device out")
    asked = options.precision
    if asked is None:
        half = adapter.fp16 and bundle.find_variant(Device.GPU, "fp16")
        return "fp16" if half else "fp32"
    if asked == "fp16" and not adapter.fp16:
        raise Unfit(f"{adapter.name} does not compute in FP16 (shader-f16); use precision fp32")
    if not webgpu.PLACE.computes(asked):
        raise Unfit(f"WebGPU computes in {named(webgpu.PLACE.precisions)}, not in {asked}")
    return asked


def _preferred(bundle: Bundle, precision: str | None) -> Iterator[Place]:
    """The GPUs that are tried without being named, in this order."""
    cuda, on_webgpu = RECORD.place("cuda"), RECORD.place("webgpu")
    has_cuda = PROVIDERS["cuda"] in ort.get_available_providers()
    if has_cuda and bundle.find_variant(Device.GPU, precision):
        yield cuda
    devices = vulkan_devices()
    if find_spec(on_webgpu.library) and (devices is None or any(not d.software for d in devices)):
        with suppress(MrcfaError):  # without a GPU there is nothing to report
            if not webgpu.adapter().software:
                yield on_webgpu


def open_session(
    graph: bytes, path: Path, provider: str, threads: int, device: int = 0, strict: bool = False
) -> Any:
    """A session on this provider; ONNX Runtime alone would fall back to another one silently.

    `graph` is the content of the file `path`, which is not opened again. Nodes that a GPU's
    provider leaves to the CPU are a warning, or with `strict` an error.
    """
    if provider == "cpu":
        return _session(graph, path, _options(threads), [(PROVIDERS["cpu"], {})])
    complaints, providers = "", None
    if not RECORD.place(provider).library:
        complaints = _find_cuda(provider)
        # TF32 would round the products of FP32 graphs to ten bits.
        providers = [(PROVIDERS["cuda"], {"device_id": str(device), "use_tf32": "0"})]
        if provider == "tensorrt":  # what TensorRT cannot parse is CUDA's
            providers.insert(0, (PROVIDERS["tensorrt"], {"device_id": str(device)}))
    options = _options(threads, provider)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.log_severity_level = 4  # that it refuses is no error yet
    session = None
    with suppress(MrcfaError):
        session = _session(graph, path, options, providers)
    if session is not None:
        return _checked(session, provider, complaints)
    options = _options(threads, provider)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = _session(graph, path, options, providers)
    except MrcfaError as error:
        raise _useless(provider, str(error)) from None
    _checked(session, provider, complaints)
    told = f"not the GPU but the CPU runs {_nodes_on_cpu(session)} of {path.name}"
    if strict:
        raise Unfit(told)
    warn(told)
    return session


def _options(threads: int, provider: str = "cpu") -> Any:
    options = ort.SessionOptions()
    if RECORD.place(provider).library:
        options.add_provider_for_devices([webgpu.device()], {})
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # patterns hold 200 MB more and win no time
    # Work in smaller blocks: a core that others slow down does not hold up the rest.
    options.add_session_config_entry("session.dynamic_block_base", "4")
    # Threads that wait for more work after a run would take the cores from the next session's.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Bytes that look like ONNX Runtime's own format, too, are read as what was checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # Q/DQ nodes stay where they are: moved past a transpose, FP8 makes a graph that does not load.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def _session(
    graph: bytes, path: Path, options: Any, providers: list[tuple[str, dict[str, str]]] | None
) -> Any:
    """A session that never falls back to the CPU by itself, at the start or in mid-stream.

    Without `providers` it has those of the options.
    """
    try:
        session = ort.InferenceSession(graph, options, providers=providers, enable_fallback=0)
        session._model_bytes = b""  # kept for that second attempt alone
        return session
    except Exception as error:  # ONNX Runtime raises a family of unrelated types
        raise RuntimeFailed(f"ONNX Runtime cannot load {path}: {error}") from None


def _find_cuda(provider: str) -> str:
    """Check that the provider is there; returns ONNX Runtime's complaint about CUDA, if any.

    CUDA's libraries from pip are on no search path, so ONNX Runtime loads them itself here.
    """
    if PROVIDERS[provider] not in ort.get_available_providers():
        raise _useless(provider, "this build of ONNX Runtime has none")
    said = io.StringIO()
    if hasattr(ort, "preload_dlls"):
        with redirect_stdout(said):
            ort.preload_dlls()
    return said.getvalue().partition("\n")[0]


def _checked(session: Any, provider: str, complaints: str) -> Any:
    """The session, if its first provider is the one asked for and not a fallback."""
    if session.get_providers()[0] != PROVIDERS[provider]:
        raise _useless(provider, complaints)
    return session


def _useless(provider: str, why: str) -> Unfit:
    place = RECORD.place(provider)
    return Unfit(
        f"ONNX Runtime cannot use its {place.runtime_name} here{f': {why}' if why else ''}; "
        f"choose onnxruntime:cpu, or install: {install_command(place.extra)}"
    )


def _nodes_on_cpu(session: Any) -> str:
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return "some nodes"
    nodes = [
        f"{node.name or 'a node'} ({node.op_type})"
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == PROVIDERS["cpu"]
        for node in part.get_nodes()
    ]
    return f"{len(nodes)} nodes ({named(nodes)})"
