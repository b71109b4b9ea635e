"""The bundle's engines in TensorRT or TensorRT-RTX, on a GPU they were built for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from mrcfa.backends import Arrays, Backend, Image, Options
from mrcfa.backends.cuda import CudaEvent, CudaStream, DeviceArray, DeviceFrame, pinned_array
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.launch import GraphUse, Launch
from mrcfa.backends.plans import Plans, Tensors, candidates
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.manifest import STATE, Engine, Output
from mrcfa.errors import MrcfaError, Unsupported


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
    overlaps_frames = True

    def __init__(self, bundle: Bundle, which: str, options: Options) -> None:
        self.model = bundle.manifest
        self._answer, self.streams = bundle.manifest.output.value, bundle.manifest.streams
        if options.device_masks and bundle.manifest.output is not Output.MASK:
            raise Unsupported(
                f"{bundle.path} answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask"
            )
        engines = candidates(bundle, which, options.precision)
        self._cuda, self._options = Cuda(options.device), options
        self._graphs = GraphUse(options.cuda_graphs)
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
        with suppress(MrcfaError), self._at_work(state):
            state.stream.synchronize()  # for frames that nobody fetched
        if state.whole:
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
        """The seconds are the GPU's own."""
        slot, works = state.slot, self._works(self._alike(image), state)
        with self._at_work(state):
            marks = [state.front.mark(timed=True)]
            for stream, work in works.values():
                work()
                marks.append(stream.mark(timed=True))
            outputs, *_ = self._collected(_Begun(state, slot, marks[-1], image))
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

    def _alike(self, image: Image) -> list[Image]:
        return [image] * self.streams

    def _begun(self, images: Sequence[Image | None], lane: "Lane") -> "_Begun":
        slot = lane.slot
        for _, work in self._works(images, lane).values():
            work()
        return _Begun(lane, slot, lane.stream.mark(), images)

    def _works(
        self, images: Sequence[Image | None], lane: "Lane"
    ) -> dict[str, tuple[CudaStream, Callable[[], None]]]:
        """What the next frame takes, and the CUDA stream that each part of it runs on."""
        slot = lane.slot
        absent = [row for row, image in enumerate(images) if image is None]
        return {
            "upload": (lane.front, lambda: lane.load(images)),
            "encoder": (lane.front, lane.encode),
            "decoder": (lane.stream, lambda: lane.decode(absent)),
            "download": (lane.stream, lambda: self._fetch(lane, slot)),
        }

    def _fetch(self, lane: "Lane", slot: "_Slot") -> None:
        if not self._options.device_masks:
            lane.stream.download(slot.host_answer, slot.answer)

    def _collected(self, begun: "_Begun") -> list[Arrays]:
        """What each row answers."""
        begun.done.synchronize()
        self._name_itself()
        if not self._ran:
            self._plans.save_cache()  # in case that the first run compiled more
            self._ran = True
        slot = begun.slot
        answers: Any = slot.answer.rows() if self._options.device_masks else slot.host_answer.copy()
        return [{self._answer: answer} for answer in answers]

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


class Lane:
    """All that one stream of frames needs on the GPU; two memories, which swap at every frame.

    Encoder and decoder take turns on one CUDA stream, in one scratch memory, until `overlap` lets
    the encoder be a frame ahead: then each has its own of both, and either turn its own slot. At
    most two frames are begun and not collected, so whoever takes a slot finds it free.
    """

    def __init__(self, cuda: Cuda, plans: Plans, answer: str, graphs: GraphUse) -> None:
        self._cuda, self._plans, self._answer, self._graphs = cuda, plans, answer, graphs
        self.whole = True
        """Whether all that was ever queued on it went well."""
        self.stream = self.front = CudaStream(cuda)
        """The decoder's and the encoder's."""
        scratch = plans.scratch("encoder", "decoder")
        self._encoder = plans.context("encoder", scratch)
        self._decoder = plans.context("decoder", scratch)
        self._slots = [_Slot(cuda, plans, answer)] * 2
        self._memories = [
            {
                spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
                for spec in plans.variant.decoder.inputs
                if spec.name in STATE
            }
            for _ in range(2)
        ]
        self._turn = 0
        self._prepare()

    def overlap(self) -> None:
        """From now on; while no frame is under way. Who never asks for it pays no memory for it."""
        if self.front is not self.stream:
            return
        scratch, slot = self._plans.scratch("decoder"), _Slot(self._cuda, self._plans, self._answer)
        self.front = CudaStream(self._cuda)
        self._decoder.use(scratch)
        self._slots = [self._slots[0], slot]
        self._prepare()

    @property
    def slot(self) -> "_Slot":
        """The next frame's."""
        return self._slots[self._turn]

    def reset(self) -> None:
        self._turn = 0
        for tensor in self._memories[0].values():
            self.stream.zero(tensor)

    def restart(self, row: int) -> None:
        """At frame 0 a decoder looks at no memory."""
        self.stream.zero(self._memories[self._turn]["frame"].rows()[row])

    def load(self, images: Sequence[Any]) -> None:
        """An image for each row, or None, where the one before it stays."""
        slot = self.slot
        for target, host, image in zip(slot.image.rows(), slot.host_image, images, strict=True):
            if isinstance(image, np.ndarray):
                host[...] = image
                self.front.upload(target, host)
            elif image is not None:
                self.front.copy(target, DeviceFrame.of(image, target.shape))

    def encode(self) -> None:
        self._encodings[self.slot]()

    def decode(self, absent: Sequence[int] = ()) -> None:
        """Rows of absent streams are carried over as they were."""
        if self.front is not self.stream:
            self.stream.wait(self.front.mark())
        self._decodings[self._turn]()
        before, after = self._memories[self._turn], self._memories[1 - self._turn]
        for name, row in product(before, absent):
            self.stream.copy(after[name].rows()[row], before[name].rows()[row])
        self._turn ^= 1

    def _prepare(self) -> None:
        self._encodings = {
            slot: Launch(
                self.front, self._encoder, {"image": slot.image, **slot.features}, self._graphs
            )
            for slot in self._slots
        }
        self._decodings = [
            Launch(self.stream, self._decoder, self._decoding(turn), self._graphs)
            for turn in range(2)
        ]

    def _decoding(self, turn: int) -> Tensors:
        """Ping-pong: every other frame the two memories change places."""
        slot, before, after = self._slots[turn], self._memories[turn], self._memories[1 - turn]
        fed_back = {f"{name}_out": tensor for name, tensor in after.items()}
        return {**slot.features, **before, **fed_back, self._answer: slot.answer}


class _Slot:
    """What a frame needs while it is under way and no other frame may touch."""

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
    """Kept: what is on the GPU is copied from there while the caller goes on."""
