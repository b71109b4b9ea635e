"""The bundle's engines in TensorRT or TensorRT-RTX, on a GPU they were built for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mrcfa.backends import Arrays, Backend, Image, Options
from mrcfa.backends.cuda import Cuda, CudaGraph, CudaStream, DeviceArray, DeviceFrame, pinned_array
from mrcfa.bundle import Bundle, Unfit
from mrcfa.errors import MrcfaError, member, named
from mrcfa.flavours import Flavour, complaint, heard, load_plugin, logger
from mrcfa.machine import Gpu
from mrcfa.manifest import STATE, Engine, Output

Tensors = Mapping[str, DeviceArray]


class TensorRTBackend(Backend):
    """One engine of the bundle; `which` is its name or flavour, else the newest that fits.

    A frame is a uint8 array in host memory, or anything on the GPU with `__cuda_array_interface__`.

    A state is a lane on the GPU, advanced in place: what `step` returns is the state it was given,
    and `finish` gives the lane to the next stream.

    Threads: any number may share the backend, each with a state of its own. A state has its own
    CUDA stream and buffers, so states in different threads run side by side, and one state belongs
    to one thread at a time. The CUDA context is the one that was current where the backend was
    made, such as pycuda's, or else the primary one of the device. Every call makes it current for
    its own duration, so it does not matter which context the calling thread has.
    """

    takes_device_frames = True

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        self._answer = bundle.manifest.output.value
        if options.device_masks and bundle.manifest.output is not Output.MASK:
            raise MrcfaError(
                f"{bundle.path} answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask"
            )
        engines = _candidates(bundle, which, options.precision)
        self._cuda = Cuda(options.device)
        gpu = self._cuda.gpu
        engine, trt = _fitting(engines, gpu, bundle.path)
        with self._cuda.current():
            self._plans = _Plans(bundle, engine, trt, gpu, options.plugin_library)
        self._options = options
        self._idle: list[Lane] = []
        self.name = f"tensorrt ({engine.name}, {gpu.name})"

    def start(self) -> "Lane":
        with self._cuda.current():
            lane = self._lane()
            lane.reset()
            return lane

    def finish(self, state: "Lane") -> None:
        self._idle.append(state)

    def step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane"]:
        with self._cuda.current():
            for work in self._works(image, state).values():
                work()
            return self._collected(state), state

    def timed_step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane", dict[str, float]]:
        """The seconds are the GPU's own."""
        works = self._works(image, state)
        with self._cuda.current():
            marks = [state.stream.mark()]
            for work in works.values():
                work()
                marks.append(state.stream.mark())
            outputs = self._collected(state)
            seconds = [after.seconds_since(before) for before, after in pairwise(marks)]
        return outputs, state, dict(zip(works, seconds, strict=True))

    def _works(self, image: Image, lane: "Lane") -> dict[str, Callable[[], None]]:
        return {
            "upload": lambda: lane.load(image),
            "encoder": lane.encode,
            "decoder": lane.decode,
            "download": lambda: self._fetch(lane),
        }

    def _fetch(self, lane: "Lane") -> None:
        if not self._options.device_masks:
            lane.stream.download(lane.host_answer, lane.answer)

    def _collected(self, lane: "Lane") -> Arrays:
        lane.stream.synchronize()
        answer: Any = lane.answer if self._options.device_masks else lane.host_answer.copy()
        return {self._answer: answer}

    def _lane(self) -> "Lane":
        with suppress(IndexError):
            return self._idle.pop()
        return Lane(self._cuda, self._plans, self._answer, self._options.cuda_graphs)


class Lane:
    """All that one stream of frames needs on the GPU; two memories, which swap at every frame."""

    def __init__(self, cuda: Cuda, plans: "_Plans", answer: str, cuda_graphs: bool) -> None:
        self._answer = answer
        self.stream = CudaStream(cuda)
        encoder, decoder = plans.context("encoder"), plans.context("decoder")
        (image,) = plans.variant.encoder.inputs
        self._image = DeviceArray(cuda, image.shape[1:], image.dtype)
        self._host_image = pinned_array(cuda, self._image.shape, image.dtype)
        self._features = {
            spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
            for spec in plans.variant.encoder.outputs
        }
        self._memories = [
            {
                spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
                for spec in plans.variant.decoder.inputs
                if spec.name in STATE
            }
            for _ in range(2)
        ]
        (spec,) = (spec for spec in plans.variant.decoder.outputs if spec.name == answer)
        self.answer = DeviceArray(cuda, spec.shape[1:], spec.dtype)
        self.host_answer = pinned_array(cuda, self.answer.shape, spec.dtype)
        self._turn = 0
        encoding = {"image": self._image, **self._features}
        self.encode = _Launch(self.stream, encoder, encoding, cuda_graphs)
        self._decodings = [
            _Launch(self.stream, decoder, self._decoding(turn), cuda_graphs) for turn in range(2)
        ]

    def reset(self) -> None:
        self._turn = 0
        for tensor in self._memories[0].values():
            self.stream.zero(tensor)

    def load(self, image: Any) -> None:
        if isinstance(image, np.ndarray):
            self._host_image[...] = image
            self.stream.upload(self._image, self._host_image)
        else:
            self.stream.copy(self._image, DeviceFrame.of(image, self._image.shape))

    def decode(self) -> None:
        self._decodings[self._turn]()
        self._turn ^= 1

    def _decoding(self, turn: int) -> Tensors:
        """Ping-pong: every other frame the two memories change places."""
        before, after = self._memories[turn], self._memories[1 - turn]
        fed_back = {f"{name}_out": tensor for name, tensor in after.items()}
        return {**self._features, **before, **fed_back, self._answer: self.answer}


class _Launch:
    """An engine on tensors that stay where they are, as a CUDA graph if wanted.

    A graph keeps the addresses it was recorded with, so either turn of the state has its own. The
    first run is not recorded: TensorRT may set itself up in it, which recording forbids.
    """

    def __init__(
        self, stream: CudaStream, context: "_Context", tensors: Tensors, as_graph: bool
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
        plugin_library: Path | None,
    ) -> None:
        self._trt = trt
        self.variant = bundle.manifest.variants[engine.variant]
        self._runtime = trt.Runtime(logger(trt))
        self._runtime.engine_host_code_allowed = engine.version_compatible
        if engine.plugin:
            try:
                load_plugin(trt, plugin_library)
            except MrcfaError as error:
                raise Unfit(f"the engine {engine.name} needs a plugin: {error}") from None
        self._engines: dict[str, Any] = {}
        for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder)):
            path = bundle.file(name)
            with heard(trt) as said:
                self._engines[part] = self._runtime.deserialize_cuda_engine(path.read_bytes())
            if self._engines[part] is None:
                raise Unfit(
                    f"{trt.__name__} {trt.__version__} on {gpu.name} cannot load {path}, built "
                    f"with {engine.tensorrt}: {complaint(said)}"
                )

    def context(self, part: str) -> "_Context":
        return _Context(self._trt, self._engines[part])


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


def _candidates(bundle: Bundle, which: str, precision: str | None) -> list[Engine]:
    """The engines that are meant, FP16 first, then the newest."""
    engines = [
        engine
        for engine in reversed(bundle.manifest.engines)
        if which in ("", engine.name, engine.flavour) and precision in (None, engine.precision)
    ]
    if not engines:
        wanted = " ".join(word for word in (which, precision) if word)
        has = named(engine.name for engine in bundle.manifest.engines) or "none"
        raise Unfit(
            f"{bundle.path} has no engine {wanted or 'yet'} (it has {has}); "
            f"build one with: mrcfa build {bundle.path}"
        )
    return sorted(engines, key=lambda engine: engine.precision != "fp16")


def _fitting(engines: Sequence[Engine], gpu: Gpu, path: Path) -> tuple[Engine, ModuleType]:
    """The first engine that this machine can load, and its TensorRT."""
    reasons = []
    for engine in engines:
        try:
            return engine, _module(engine, gpu, path)
        except MrcfaError as error:
            reasons.append(str(error))
    raise Unfit("; ".join(dict.fromkeys(reasons)))


def _module(engine: Engine, gpu: Gpu, path: Path) -> ModuleType:
    """The TensorRT that built the engine; if it or the GPU is another, both sides are named."""
    flavour = member(Flavour, engine.flavour, "flavour")
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
