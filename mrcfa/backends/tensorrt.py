"""The bundle's engines in TensorRT or TensorRT-RTX, on a GPU they were built for."""

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mrcfa.backends import Arrays, Backend, Image, Unfit
from mrcfa.backends.cuda import Cuda, CudaGraph, CudaStream, DeviceArray, DeviceFrame, pinned_array
from mrcfa.bundle import Bundle, Engine, Graph
from mrcfa.errors import MrcfaError, named
from mrcfa.flavours import Flavour, complaint, heard, load_plugin, logger
from mrcfa.machine import Gpu

STATE = ("memory", "frame")
"""What a decoder feeds back: inputs of these names, and outputs with `_out` behind them."""

Tensors = Mapping[str, DeviceArray]


class TensorRTBackend(Backend):
    """One engine of the bundle; `variant` is its name or flavour, else the newest that fits.

    A frame is a uint8 array in host memory, or anything on the GPU with `__cuda_array_interface__`.
    With `device_masks` masks stay on the GPU, each until the next frame of its stream overwrites
    it. With `graphs` the kernels are launched as CUDA graphs, which costs the CPU less.

    A state is advanced in place: what `decode` and `step` return is the state they were given.

    Threads: any number may share the backend, each with a state of its own. A state has its own
    CUDA stream and buffers, so states in different threads run side by side, and one state belongs
    to one thread at a time. The CUDA context is the one that was current where the backend was
    made, such as pycuda's, or else the primary one of the first device. Every call makes it current
    for its own duration, so it does not matter which context the calling thread has.
    """

    takes_device_frames = True

    def __init__(
        self,
        bundle: Bundle,
        variant: str | None = None,
        precision: str | None = None,
        graphs: bool = False,
        device_masks: bool = False,
        plugin_library: str | Path | None = None,
    ) -> None:
        self._answer = bundle.manifest.output
        if device_masks and self._answer != "mask":
            raise MrcfaError(
                f"{bundle.path} answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask"
            )
        self._cuda = Cuda()
        gpu = self._cuda.gpu
        engine, trt = _fitting(bundle, gpu, variant, precision)
        with self._cuda.current():
            self._plans = _Plans(bundle, engine, trt, gpu, plugin_library)
        self._graphs, self._device_masks = graphs, device_masks
        self._idle: list[_Lane] = []
        self.name = f"tensorrt ({engine.name}, {gpu.name})"

    def start(self) -> "State":
        with self._cuda.current():
            lane = self._lane()
            lane.reset()
            return State(lane, self._idle)

    def encode(self, image: Image) -> Tensors:
        with self._cuda.current():
            lane = self._lane()
            features = lane.encode_apart(image)
            self._idle.append(lane)
            return features

    def decode(self, features: Tensors, state: "State") -> tuple[Arrays, "State"]:
        with self._cuda.current():
            state.lane.decode_apart(features)
            self._fetch(state.lane)
            return self._collected(state.lane), state

    def step(self, image: Image, state: "State") -> tuple[Arrays, "State"]:
        with self._cuda.current():
            for work in self._works(image, state.lane).values():
                work()
            return self._collected(state.lane), state

    def timed_step(self, image: Image, state: "State") -> tuple[Arrays, "State", dict[str, float]]:
        """The seconds are the GPU's own."""
        works = self._works(image, state.lane)
        with self._cuda.current():
            marks = [state.lane.stream.mark()]
            for work in works.values():
                work()
                marks.append(state.lane.stream.mark())
            outputs = self._collected(state.lane)
            seconds = [after.seconds_since(before) for before, after in pairwise(marks)]
        return outputs, state, dict(zip(works, seconds, strict=True))

    def _works(self, image: Image, lane: "_Lane") -> dict[str, Callable[[], None]]:
        return {
            "upload": lambda: lane.load(image),
            "encoder": lane.encode,
            "decoder": lane.decode,
            "download": lambda: self._fetch(lane),
        }

    def _fetch(self, lane: "_Lane") -> None:
        if not self._device_masks:
            lane.stream.download(lane.host_answer, lane.answer)

    def _collected(self, lane: "_Lane") -> Arrays:
        lane.stream.synchronize()
        answer: Any = lane.answer if self._device_masks else lane.host_answer.copy()
        return {self._answer: answer}

    def _lane(self) -> "_Lane":
        with suppress(IndexError):
            return self._idle.pop()
        return _Lane(self._cuda, self._plans, self._answer, self._graphs)


class State:
    """A stream's place on the GPU. Letting go of it gives the place to the next stream."""

    def __init__(self, lane: "_Lane", idle: list["_Lane"]) -> None:
        self.lane = lane
        weakref.finalize(self, idle.append, lane)


class _Lane:
    """All that one stream of frames needs on the GPU; two memories, which swap at every frame."""

    def __init__(self, cuda: Cuda, plans: "_Plans", answer: str, graphs: bool) -> None:
        self._cuda, self._plans, self._answer = cuda, plans, answer
        self.stream = CudaStream(cuda)
        self._encoder, self._decoder = plans.context("encoder"), plans.context("decoder")
        (image,) = plans.graphs["encoder"].inputs
        self._image = DeviceArray(cuda, image.shape[1:], image.dtype)
        self._host_image = pinned_array(cuda, self._image.shape, image.dtype)
        self._features = plans.features(cuda)
        self._memories = [
            {
                spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
                for spec in plans.graphs["decoder"].inputs
                if spec.name in STATE
            }
            for _ in range(2)
        ]
        (spec,) = (spec for spec in plans.graphs["decoder"].outputs if spec.name == answer)
        self.answer = DeviceArray(cuda, spec.shape[1:], spec.dtype)
        self.host_answer = pinned_array(cuda, self.answer.shape, spec.dtype)
        self._parity = 0
        self.encode = _Launch(self.stream, self._encoder, self._encoding(self._features), graphs)
        self._decodings = [
            _Launch(self.stream, self._decoder, self._decoding(self._features, parity), graphs)
            for parity in range(2)
        ]

    def reset(self) -> None:
        self._parity = 0
        for tensor in self._memories[0].values():
            self.stream.zero(tensor)

    def load(self, image: Any) -> None:
        if isinstance(image, np.ndarray):
            self._host_image[...] = image
            self.stream.upload(self._image, self._host_image)
        else:
            self.stream.copy(self._image, DeviceFrame.of(image, self._image.shape))

    def decode(self) -> None:
        self._decodings[self._parity]()
        self._parity ^= 1

    def encode_apart(self, image: Any) -> Tensors:
        """Into tensors of their own, which stay when this lane goes on."""
        features = self._plans.features(self._cuda)
        self.load(image)
        _Launch(self.stream, self._encoder, self._encoding(features))()
        self.stream.synchronize()
        return features

    def decode_apart(self, features: Tensors) -> None:
        _Launch(self.stream, self._decoder, self._decoding(features, self._parity))()
        self._parity ^= 1

    def _encoding(self, features: Tensors) -> Tensors:
        return {"image": self._image, **features}

    def _decoding(self, features: Tensors, parity: int) -> Tensors:
        before, after = self._memories[parity], self._memories[1 - parity]
        fed_back = {f"{name}_out": tensor for name, tensor in after.items()}
        return {**features, **before, **fed_back, self._answer: self.answer}


class _Launch:
    """An engine on tensors that stay where they are, as a CUDA graph if wanted.

    A graph keeps the addresses it was recorded with, so either parity of the state has its own. The
    first run is not recorded: TensorRT may set itself up in it, which recording forbids.
    """

    def __init__(
        self, stream: CudaStream, context: "_Context", tensors: Tensors, as_graph: bool = False
    ) -> None:
        self._stream, self._context, self._tensors = stream, context, tensors
        self._as_graph, self._ran = as_graph, False
        self._graph: CudaGraph | None = None

    def __call__(self) -> None:
        if self._as_graph and self._ran and self._graph is None:
            self._graph = self._stream.capture(self._enqueue)
        if self._graph is None:
            self._enqueue()
        else:
            self._stream.launch(self._graph)
        self._ran = True

    def _enqueue(self) -> None:
        self._context.enqueue(self._tensors, self._stream)


class _Plans:
    """Encoder and decoder, deserialised; any number of lanes may execute them."""

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
        trt: ModuleType,
        gpu: Gpu,
        plugin_library: str | Path | None,
    ) -> None:
        self._trt = trt
        self._runtime = trt.Runtime(logger(trt))
        self._runtime.engine_host_code_allowed = engine.version_compatible
        if engine.plugin:
            try:
                load_plugin(trt, plugin_library)
            except MrcfaError as error:
                raise Unfit(f"the engine {engine.name} needs a plugin: {error}") from None
        self.graphs: dict[str, Graph] = {}
        self._engines: dict[str, Any] = {}
        for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder)):
            path = bundle.file(name)
            self.graphs[part] = bundle.graph(engine.precision, part)
            with heard(trt) as said:
                self._engines[part] = self._runtime.deserialize_cuda_engine(path.read_bytes())
            if self._engines[part] is None:
                raise Unfit(
                    f"{trt.__name__} {trt.__version__} on {gpu.name} cannot load {path}, built "
                    f"with {engine.tensorrt}: {complaint(said)}"
                )

    def context(self, part: str) -> "_Context":
        return _Context(self._trt, self._engines[part])

    def features(self, cuda: Cuda) -> Tensors:
        return {
            spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
            for spec in self.graphs["encoder"].outputs
        }


class _Context:
    """One engine's execution context, whose failures are errors with TensorRT's own words."""

    def __init__(self, trt: ModuleType, engine: Any) -> None:
        self._trt = trt
        with heard(trt) as said:
            self._context = engine.create_execution_context()
        if self._context is None:
            raise MrcfaError(f"TensorRT cannot prepare the engine: {complaint(said)}")

    def enqueue(self, tensors: Tensors, stream: CudaStream) -> None:
        with heard(self._trt) as said:
            done = all(
                self._context.set_tensor_address(name, tensor.ptr)
                for name, tensor in tensors.items()
            ) and self._context.execute_async_v3(stream.address)
        if not done:
            raise MrcfaError(f"TensorRT cannot run the engine: {complaint(said)}")


def _fitting(
    bundle: Bundle, gpu: Gpu, variant: str | None, precision: str | None
) -> tuple[Engine, ModuleType]:
    """The newest engine that this machine can load, FP16 first, and its TensorRT."""
    engines = [
        engine
        for engine in reversed(bundle.manifest.engines)
        if variant in (None, engine.name, engine.flavour) and precision in (None, engine.precision)
    ]
    if not engines:
        wanted = " ".join(word for word in (variant, precision) if word)
        has = named(engine.name for engine in bundle.manifest.engines) or "none"
        raise Unfit(
            f"{bundle.path} has no engine {wanted or 'yet'} (it has {has}); "
            f"build one with: mrcfa build {bundle.path}"
        )
    reasons = []
    for engine in sorted(engines, key=lambda engine: engine.precision != "fp16"):
        try:
            return engine, _module(engine, gpu, bundle.path)
        except MrcfaError as error:
            reasons.append(str(error))
    raise Unfit("; ".join(dict.fromkeys(reasons)))


def _module(engine: Engine, gpu: Gpu, path: Path) -> ModuleType:
    """The TensorRT that built the engine; if it or the GPU is another, both sides are named."""
    flavour = Flavour(engine.flavour)
    if gpu.sm not in engine.compute_capabilities:
        built = named(f"sm_{sm}" for sm in engine.compute_capabilities)
        raise Unfit(
            f"the engine {engine.name} was built for {built} and {gpu.name} is sm_{gpu.sm}; "
            f"build one for it with: mrcfa build {path} --sm {gpu.sm}"
        )
    trt = flavour.load()
    here, built = trt.__version__, engine.tensorrt
    compatible = engine.version_compatible and here.split(".")[0] == built.split(".")[0]
    if here != built and not compatible:
        raise Unfit(
            f"the engine {engine.name} was built with {flavour.product} {built} and this machine "
            f"has {here}; build it again with: mrcfa build {path}, or install {built}"
        )
    return trt
