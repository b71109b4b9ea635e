"""The backend that runs a bundle's engines in TensorRT or TensorRT-RTX."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from mrcfa.backends import Arrays, Backend, Image, Options
from mrcfa.backends.cuda import CudaEvent, CudaStream, DeviceArray, DeviceFrame, pinned_array
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.fitting import candidates, engine_title, first_loaded, requested
from mrcfa.backends.launch import GraphUse, Launch
from mrcfa.backends.plans import Context, Plans, Tensors, machine_of
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import STATE, Engine, Output
from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError, Unsupported

_PARTS = ("encoder", "decoder")


class TensorRTBackend(Backend):
    """One engine of the bundle. `which` is its name or flavour; empty means the best that loads.

    A frame is a uint8 array in host memory, or anything on the GPU with `__cuda_array_interface__`.

    A state is a lane on the GPU, which is advanced in place: `step` returns the state that it was
    given, and `finish` gives the lane to the next stream. The first lane is made at once, so an
    open backend can run, and the kernels that TensorRT-RTX compiles for it are in the cache.

    Threads: any number may share the backend, each with a state of its own. A state has its own
    CUDA stream and buffers, so states in different threads run side by side, and one state belongs
    to one thread at a time. The CUDA context is the one that was current where the backend was
    made, such as pycuda's, or else the primary one of the device. Every call makes it current for
    its own duration, so it does not matter which context the calling thread has.
    """

    takes_device_frames = True
    on_gpu = True
    overlaps_frames = True

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        self.model = manifest = bundle.manifest
        self._answer, self.streams = manifest.output.value, manifest.streams
        if options.device_masks and manifest.output is not Output.MASK:
            raise Unsupported(
                f"{bundle.path} answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask"
            )
        wanted = requested(manifest.engines, which, options.precision, bundle.path)
        self._cuda, self._options = Cuda(options.device), options
        self._graphs = GraphUse(options.cuda_graphs)
        self._idle: list[Lane] = []
        self._ran = False
        with self._at_work():
            fitting = candidates(wanted, machine_of(self._cuda), bundle.path)
            self._plans, notice = first_loaded(fitting, partial(self._loaded, bundle))
        if notice:
            warn(notice)
        self._titles = {
            graphs: engine_title(self._plans.engine, self._cuda.gpu, graphs)
            for graphs in (True, False)
        }
        self.name = self._titles[self._graphs.wanted]

    def _loaded(self, bundle: Bundle, engine: Engine) -> Plans:
        """The plans of an engine, with a lane that proves that they can run."""
        plans = Plans(self._cuda, bundle, engine, self._options.plugin_library)
        self._idle.append(self._new_lane(plans))
        plans.save_cache()
        return plans

    def start(self) -> "Lane":
        with self._at_work():
            lane = self._lane()
            lane.reset()
            return lane

    def usable(self) -> bool:
        return self._cuda.serves(self._options.device)

    def finish(self, state: "Lane") -> None:
        with suppress(MrcfaError), self._at_work(state):
            state.decoder_stream.synchronize()  # for frames whose masks nobody fetched
        if state.intact:
            self._idle.append(state)

    def step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane"]:
        with self._at_work(state):
            return self._collected(self._begun(self._alike(image), state))[0], state

    def step_all(
        self, images: Sequence[Image | None], state: "Lane"
    ) -> tuple[list[Arrays | None], "Lane"]:
        with self._at_work(state):
            answers = self._collected(self._begun(images, state))
        return [
            None if image is None else answer for image, answer in zip(images, answers, strict=True)
        ], state

    def restart(self, row: int, state: "Lane") -> "Lane":
        with self._at_work(state):
            state.restart(row)
        return state

    def submit(self, image: Image, state: "Lane") -> tuple["_Begun", "Lane"]:
        with self._at_work(state):
            state.overlap()
            return self._begun(self._alike(image), state), state

    def result(self, begun: "_Begun") -> Arrays:
        with self._at_work(begun.lane):
            return self._collected(begun)[0]

    def timed_step(self, image: Image, state: "Lane") -> tuple[Arrays, "Lane", dict[str, float]]:
        """The seconds are measured by events on the GPU."""
        slot = state.slot
        with self._at_work(state):
            before = state.encoder_stream.mark(timed=True)
            marks = {
                part: stream.mark(timed=True) for part, stream in state.parts(self._alike(image))
            }
            outputs, *_ = self._collected(_Begun(state, slot, marks["download"], image))
            seconds = {}
            for part, mark in marks.items():
                seconds[part] = mark.seconds_since(before)
                before = mark
        return outputs, state, seconds

    def graph_nodes(self, state: "Lane") -> dict[str, list[int]]:
        """The number of nodes of each CUDA graph of a state, by part; 0 if it is not recorded."""
        return state.graph_nodes

    @property
    def graphs_failure(self) -> str:
        """The reason why CUDA graphs cannot be recorded; empty if none failed."""
        return self._graphs.failure

    @contextmanager
    def _at_work(self, lane: "Lane | None" = None) -> Iterator[None]:
        """Work in the CUDA context; a lane on which anything fails serves no other stream."""
        try:
            with self._cuda.failures_explained(), self._cuda.current():
                yield
        except BaseException:
            if lane is not None:
                lane.intact = False
            raise

    def _alike(self, image: Image) -> list[Image]:
        return [image] * self.streams

    def _begun(self, images: Sequence[Image | None], lane: "Lane") -> "_Begun":
        slot = lane.slot
        for _part in lane.parts(images):
            pass
        return _Begun(lane, slot, lane.decoder_stream.mark(), images)

    def _collected(self, begun: "_Begun") -> list[Arrays]:
        """The answer of each row, once it is there."""
        begun.done.synchronize()
        self.name = self._titles[self._graphs.wanted]  # recording may have failed by now
        if not self._ran:
            self._plans.save_cache()  # the first run may have compiled more
            self._ran = True
        slot = begun.slot
        answers: Any = slot.answer.rows() if self._options.device_masks else slot.host_answer.copy()
        return [{self._answer: answer} for answer in answers]

    def _lane(self) -> "Lane":
        with suppress(IndexError):
            return self._idle.pop()
        return self._new_lane(self._plans)

    def _new_lane(self, plans: Plans) -> "Lane":
        to_host = not self._options.device_masks
        return Lane(self._cuda, plans, self._answer, self._graphs, to_host)


class Lane:
    """The buffers and contexts of one stream on the GPU, with two memories that swap every frame.

    The encoder and the decoder run in turn on one CUDA stream, in one scratch memory. After
    `overlap` the encoder may be a frame ahead: each then has a stream and scratch memory of its
    own, and each buffer index a slot. At most two frames are begun and not collected, so the next
    slot is always free.

    Each CUDA graph has a context: one for the encoder in each slot, one for the decoder on each
    memory. Contexts of a part never run at once, so they share its scratch memory. Without graphs
    there is one context for each part.
    """

    def __init__(
        self, cuda: Cuda, plans: Plans, answer: str, graphs: GraphUse, to_host: bool
    ) -> None:
        self._cuda, self._plans, self._answer, self._graphs = cuda, plans, answer, graphs
        self._to_host = to_host
        self.intact = True
        """False once anything that was queued on the lane has failed."""
        self.encoder_stream = self.decoder_stream = CudaStream(cuda)
        self._scratch = dict.fromkeys(_PARTS, plans.scratch(*_PARTS))
        self._contexts: dict[str, list[Context]] = {part: [] for part in _PARTS}
        self._slots = [_Slot(cuda, plans, answer)] * 2
        self._memories = [
            {
                spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
                for spec in plans.variant.decoder.inputs
                if spec.name in STATE
            }
            for _ in range(2)
        ]
        self._index = 0
        """The buffer index of the next frame: the memory that it reads, and its slot."""
        self._prepare()

    def overlap(self) -> None:
        """Let the encoder be a frame ahead from now on, while no frame is under way.

        The buffers for it are allocated at the first call.
        """
        if self.encoder_stream is not self.decoder_stream:
            return
        scratch, slot = self._plans.scratch("decoder"), _Slot(self._cuda, self._plans, self._answer)
        self.encoder_stream = CudaStream(self._cuda)
        self._scratch["decoder"] = scratch
        for context in self._contexts["decoder"]:
            context.use(scratch)
        self._slots = [self._slots[0], slot]
        self._prepare()

    @property
    def slot(self) -> "_Slot":
        """The slot of the next frame."""
        return self._slots[self._index]

    @property
    def graph_nodes(self) -> dict[str, list[int]]:
        """The number of nodes of each CUDA graph, by part; 0 if it is not recorded."""
        launches = {"encoder": self._encodings.values(), "decoder": self._decodings}
        return {part: [launch.nodes for launch in each] for part, each in launches.items()}

    def reset(self) -> None:
        self._index = 0
        for tensor in self._memories[0].values():
            self.decoder_stream.zero(tensor)

    def restart(self, row: int) -> None:
        """Set the row's frame number to 0, at which a decoder reads no memory."""
        self.decoder_stream.zero(self._memories[self._index]["frame"].rows()[row])

    def parts(self, images: Sequence[Any]) -> Iterator[tuple[str, CudaStream]]:
        """Queue the next frame in parts, and yield each part's name and stream once it is queued.

        There is an image for each row, or None for a row that keeps its memory.
        """
        slot = self.slot
        self._upload(slot, images)
        yield "upload", self.encoder_stream
        self._encodings[slot]()
        yield "encoder", self.encoder_stream
        self._decode([row for row, image in enumerate(images) if image is None])
        yield "decoder", self.decoder_stream
        if self._to_host:
            self.decoder_stream.download(slot.host_answer, slot.answer)
        yield "download", self.decoder_stream

    def _upload(self, slot: "_Slot", images: Sequence[Any]) -> None:
        for target, host, image in zip(slot.image.rows(), slot.host_image, images, strict=True):
            if isinstance(image, np.ndarray):
                host[...] = image
                self.encoder_stream.upload(target, host)
            elif image is not None:
                self.encoder_stream.copy(target, DeviceFrame.of(image, target.shape, self._cuda))

    def _decode(self, absent: Sequence[int]) -> None:
        """Run the decoder; the memory of absent rows is copied as it was."""
        if self.encoder_stream is not self.decoder_stream:
            self.decoder_stream.wait(self.encoder_stream.mark())
        self._decodings[self._index]()
        before, after = self._memories[self._index], self._memories[1 - self._index]
        for name, row in product(before, absent):
            self.decoder_stream.copy(after[name].rows()[row], before[name].rows()[row])
        self._index = 1 - self._index

    def _prepare(self) -> None:
        self._encodings = {
            slot: Launch(
                self.encoder_stream,
                self._context("encoder", number),
                {"image": slot.image, **slot.features},
                self._graphs,
            )
            for number, slot in enumerate(dict.fromkeys(self._slots))
        }
        self._decodings = [
            Launch(
                self.decoder_stream,
                self._context("decoder", index),
                self._decoder_tensors(index),
                self._graphs,
            )
            for index in range(2)
        ]

    def _context(self, part: str, number: int) -> Context:
        """The context of that part's graph of this number, or of all its launches."""
        contexts = self._contexts[part]
        number = number if self._graphs.wanted else 0
        if number == len(contexts):
            contexts.append(self._plans.context(part, self._scratch[part]))
        return contexts[number]

    def _decoder_tensors(self, index: int) -> Tensors:
        slot, before, after = self._slots[index], self._memories[index], self._memories[1 - index]
        fed_back = {f"{name}_out": tensor for name, tensor in after.items()}
        return {**slot.features, **before, **fed_back, self._answer: slot.answer}


class _Slot:
    """The buffers of a frame under way, which no other frame may touch."""

    def __init__(self, cuda: Cuda, plans: Plans, answer: str) -> None:
        (image,) = plans.variant.encoder.inputs
        self.image = DeviceArray(cuda, image.shape, image.dtype)
        self.host_image = pinned_array(cuda, self.image.shape, image.dtype)
        self.features = {
            spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
            for spec in plans.variant.encoder.outputs
        }
        (spec,) = (spec for spec in plans.variant.decoder.outputs if spec.name == answer)
        self.answer = DeviceArray(cuda, spec.shape, spec.dtype)
        self.host_answer = pinned_array(cuda, self.answer.shape, spec.dtype)


@dataclass(frozen=True)
class _Begun:
    """A frame under way."""

    lane: Lane
    slot: _Slot
    done: CudaEvent
    images: Any
    """Kept alive, because frames on the GPU are still read while the caller goes on."""
