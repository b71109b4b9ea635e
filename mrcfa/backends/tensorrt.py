"""The bundle's engines in TensorRT or TensorRT-RTX, on a GPU they were built for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mrcfa.backends import Arrays, Backend, Image, Options
from mrcfa.backends.cuda import CudaGraph, CudaStream, DeviceArray, DeviceFrame, pinned_array
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.plans import Context, Plans, Tensors, candidates
from mrcfa.bundle import Bundle, Unfit
from mrcfa.errors import MrcfaError
from mrcfa.manifest import STATE, Engine, Output
from mrcfa.notices import tell


class TensorRTBackend(Backend):
    """One engine of the bundle; `which` is its name or flavour, else the best that fits.

    A frame is a uint8 array in host memory, or anything on the GPU with `__cuda_array_interface__`.

    A state is a lane on the GPU, advanced in place: what `step` returns is the state it was given,
    and `finish` gives the lane to the next stream. The first lane is made at once, so that a
    backend that is open can run, and what TensorRT-RTX compiles for it is in the cache.

    Threads: any number may share the backend, each with a state of its own. A state has its own
    CUDA stream and buffers, so states in different threads run side by side, and one state belongs
    to one thread at a time. The CUDA context is the one that was current where the backend was
    made, such as pycuda's, or else the primary one of the device. Every call makes it current for
    its own duration, so it does not matter which context the calling thread has.
    """

    takes_device_frames = True
    on_gpu = True

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        self._answer = bundle.manifest.output.value
        if options.device_masks and bundle.manifest.output is not Output.MASK:
            raise MrcfaError(
                f"{bundle.path} answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask"
            )
        engines = candidates(bundle, which, options.precision)
        self._cuda, self._options = Cuda(options.device), options
        self._graphs = _GraphUse(options.cuda_graphs)
        self._idle: list[Lane] = []
        self._ran = False
        self._title, self._plans = self._opened(bundle, engines)
        self._name_itself()

    def _opened(self, bundle: Bundle, engines: list[Engine]) -> tuple[str, Plans]:
        """The first engine that this machine can run, with a lane that proves it."""
        reasons = []
        for engine in engines:
            try:
                with self._cuda.current():
                    plans = Plans(self._cuda, bundle, engine, self._options.plugin_library)
                    self._idle.append(self._new_lane(plans))
                    plans.save_cache()
                return f"{engine.name}, {self._cuda.gpu.name}", plans
            except Unfit as error:
                reasons.append(str(error))
        raise Unfit("; ".join(dict.fromkeys(reasons)))

    def start(self) -> "Lane":
        with self._at_work():
            lane = self._lane()
            lane.reset()
            return lane

    def usable(self) -> bool:
        return self._cuda.serves(self._options.device)

    def finish(self, state: "Lane") -> None:
        if state.whole:
            self._idle.append(state)

    def step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane"]:
        with self._at_work(state):
            for work in self._works(image, state).values():
                work()
            return self._collected(state), state

    def timed_step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane", dict[str, float]]:
        """The seconds are the GPU's own."""
        works = self._works(image, state)
        with self._at_work(state):
            marks = [state.stream.mark()]
            for work in works.values():
                work()
                marks.append(state.stream.mark())
            outputs = self._collected(state)
            seconds = [after.seconds_since(before) for before, after in pairwise(marks)]
        return outputs, state, dict(zip(works, seconds, strict=True))

    @contextmanager
    def _at_work(self, lane: "Lane | None" = None) -> Iterator[None]:
        """A lane on which anything fails does not serve another stream."""
        try:
            with self._cuda.losses_told(), self._cuda.current():
                yield
        except BaseException:
            if lane is not None:
                lane.whole = False
            raise

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
        self._name_itself()
        if not self._ran:
            self._plans.save_cache()  # in case that the first run compiled more
            self._ran = True
        answer: Any = lane.answer if self._options.device_masks else lane.host_answer.copy()
        return {self._answer: answer}

    def _name_itself(self) -> None:
        """That CUDA graphs cannot be recorded turns out when a stream is under way."""
        without = ", without CUDA graphs" if self._graphs.failed else ""
        self.name = f"tensorrt ({self._title}{without})"

    def _lane(self) -> "Lane":
        with suppress(IndexError):
            return self._idle.pop()
        return self._new_lane(self._plans)

    def _new_lane(self, plans: Plans) -> "Lane":
        return Lane(self._cuda, plans, self._answer, self._graphs)


def warm(
    bundle: Bundle,
    device: int | None = None,
    which: str = "",
    plugin_library: Path | None = None,
) -> str:
    """Have TensorRT-RTX compile the engine for this GPU now, so that no later start has to.

    What it answers is the backend's name. With TensorRT itself there is nothing to compile.
    """
    backend = TensorRTBackend(
        bundle, which, Options(device=device, plugin_library=plugin_library, cuda_graphs=False)
    )
    backend.step(np.zeros((*bundle.manifest.frame, 3), np.uint8), backend.start())
    return backend.name


class _GraphUse:
    """Whether the kernels of a backend are launched as CUDA graphs, which may not be possible."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.failed = wanted, False

    def give_up(self, reason: object) -> None:
        if self.wanted:
            self.wanted, self.failed = False, True
            tell(f"CUDA graphs cannot be recorded: {reason}; kernels are launched one by one")


class Lane:
    """All that one stream of frames needs on the GPU; two memories, which swap at every frame."""

    def __init__(self, cuda: Cuda, plans: Plans, answer: str, graphs: _GraphUse) -> None:
        self._answer = answer
        self.whole = True
        """Whether all that was ever queued on it went well."""
        self.stream = CudaStream(cuda)
        scratch = DeviceArray(cuda, (max(plans.scratch_bytes, 1),), "uint8")
        encoder, decoder = plans.context("encoder", scratch), plans.context("decoder", scratch)
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
        self.encode = _Launch(self.stream, encoder, encoding, graphs)
        self._decodings = [
            _Launch(self.stream, decoder, self._decoding(turn), graphs) for turn in range(2)
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
        self, stream: CudaStream, context: Context, tensors: Tensors, graphs: _GraphUse
    ) -> None:
        self._stream, self._context, self._tensors = stream, context, tensors
        self._graphs, self._ran = graphs, False
        self._graph: CudaGraph | None = None

    def __call__(self) -> None:
        if self._graphs.wanted and self._ran and self._graph is None:
            self._record()
        if self._graph is None:
            self._enqueue()
        else:
            self._stream.launch(self._graph)
        self._ran = True

    def _record(self) -> None:
        if not self._context.recordable(self._stream):
            self._graphs.give_up("this engine allocates memory or waits while it runs")
            return
        try:
            self._graph = self._stream.capture(self._enqueue)
        except MrcfaError as error:
            self._graphs.give_up(error)

    def _enqueue(self) -> None:
        self._context.enqueue(self._tensors, self._stream)
