"""The backend of a served bundle: frames go to an NVIDIA Triton server, masks come back.

The state is a sequence on the server. A restart of the server loses it; then the stream goes on
with a new sequence and prints a warning with the number of its first frame.
"""

import json
import math
import secrets
import time
from collections import abc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype

from mrcfa.backends import Arrays, Backend, Image, Model, Options
from mrcfa.backends.address import Address, Credentials
from mrcfa.backends.served import Served
from mrcfa.backends.shared_frames import Ends, SharedFrames
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.manifest import Device, Output
from mrcfa.console.notices import warn
from mrcfa.errors import (
    Damaged,
    InvalidValue,
    Mismatch,
    MrcfaError,
    NotFound,
    RuntimeFailed,
    Unsupported,
    named,
)

CALL_S = 5.0
"""Timeout of a call without a frame, which a server answers at once."""
END_S = 2.0
"""Timeout of a sequence's end. Without it the server drops the sequence later, when it is idle."""
PAUSE_S = 0.2
"""Pause between two attempts to reach a server that does not answer."""
STATISTICS_S = 2.0
"""The longest wait for the server's statistics, which count a frame after its answer was sent."""
_LARGEST_MESSAGE = 2**31 - 1
_CHANNEL = (
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Pings find out whether a host vanished or is slow; servers accept two pings without data.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
SEQUENCE_HEADER = "mrcfa-sequence"
"""Proxies that spread requests over servers can hash this header to keep a sequence together."""
_Answer = TypeVar("_Answer")
Images = abc.Sequence[Image | None]


@dataclass
class Sequence:
    """A stream's sequence on the server. Its correlation id is random, so no clients share one."""

    number: int = field(default_factory=lambda: secrets.randbits(63) or 1)
    frames: int = 0
    """The number of answers in this sequence."""
    total: int = 0
    """The number of answers in the stream."""

    def begin_anew(self) -> None:
        self.number, self.frames = secrets.randbits(63) or 1, 0


class TritonBackend(Backend):
    """A served model at the address `which`. A given bundle must be the served one."""

    def __init__(self, bundle: Bundle | None, which: str, options: Options) -> None:
        self._address = Address.parse(which)
        self._connect(Credentials.of_environment())
        self.served = self._reached(self._facts)
        if bundle is not None:
            self.served.check(bundle, str(self._address))
        self.model: Model = bundle.manifest if bundle else self.served
        self.name = f"{self._address} ({self.served.variant})"
        self._shared = SharedFrames.of(self._client, self._address, self._ends)
        self._counted = self._statistics()

    def start(self) -> Sequence:
        return Sequence()

    def timed_step(
        self, image: Image, state: Sequence
    ) -> tuple[Arrays, Sequence, dict[str, float]]:
        deadline = time.monotonic() + self._address.patience_s
        lost = ""
        while True:
            try:
                answer = self._infer(image, state, deadline - time.monotonic())
                break
            except InferenceServerException as error:
                if not _passes(error) or time.monotonic() + PAUSE_S > deadline:
                    raise self._failure(error, state) from None
                lost = lost or _said(error)
            state.begin_anew()
            time.sleep(PAUSE_S)
            self._find_again()
        if lost and state.total:
            warn(
                f"{self._address} lost this stream's memory before frame {state.total} ({lost}); "
                f"a new sequence begins with frame {state.total}"
            )
        state.frames += 1
        state.total += 1
        return {self.served.output.value: answer[0]}, state, {}

    def step_all(self, images: Images, state: Sequence) -> tuple[list[Arrays | None], Sequence]:
        raise Unsupported(
            f"{self._address} batches the frames of its cameras itself; open a Stream for each"
        )

    def late_timings(self, seconds: float) -> dict[str, float]:
        """The step's time in the server, including its queue, and the time in the network.

        The server's clock stops when its thread is done with the answer. That may be after the
        client has it.
        """
        before, until = self._counted, time.monotonic() + STATISTICS_S
        while True:
            self._counted = self._statistics()
            frames = self._counted.frames - before.frames
            if frames or time.monotonic() > until:
                break
        spent = (self._counted.seconds - before.seconds) / frames if frames else 0.0
        spent = min(spent, seconds)
        return {"server": spent, "network": seconds - spent}

    def finish(self, state: Sequence) -> None:
        """End the sequence, with an empty frame because END needs one; a lost server needs none."""
        if state.frames and self.served.sequences:
            empty = np.zeros(self.served.input.shape(self.served.frame), np.uint8)
            with suppress(InferenceServerException, MrcfaError):
                self._infer(empty, state, END_S, end=True)
            state.begin_anew()

    def _connect(self, secret: Credentials) -> None:
        address = self._address
        named_so = (("grpc.default_authority", address.authority),) if address.authority else ()
        try:
            self._client = triton.InferenceServerClient(
                address.place,
                ssl=address.tls,
                root_certificates=secret.root_certificates,
                private_key=secret.private_key,
                certificate_chain=secret.certificate_chain,
                channel_args=[*_CHANNEL, *named_so],
            )
        except OSError as error:
            raise InvalidValue(f"the certificates for {address} cannot be read: {error}") from None
        self._headers = secret.headers

    def _facts(self) -> Served:
        """The model's parameters; its inputs and outputs are checked and kept, too."""
        reply = self._client.get_model_config(
            self._address.model, headers=self._headers, client_timeout=CALL_S
        )
        parameters = {key: each.string_value for key, each in reply.config.parameters.items()}
        served = Served.from_parameters(parameters, str(self._address))
        self._ends = _ends(reply.config, served, str(self._address))
        return served

    def _reached(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer to a first question. A server or model that is missing now is an error."""
        try:
            return ask()
        except InferenceServerException as error:
            if "NOT_FOUND" in str(error.status()) or "unknown model" in _said(error):
                served = [
                    each.name
                    for each in self._client.get_model_repository_index(
                        headers=self._headers, client_timeout=CALL_S
                    ).models
                ]
                raise NotFound(
                    f"the server at {self._address.place} has no model {self._address.model!r}, "
                    f"only {named(served) or 'none'}; write {self._address.place}/MODEL with one "
                    "of those, or add it with: mrcfa triton BUNDLE -o REPOSITORY"
                ) from None
            raise Unfit(
                f"no answer from {self._address} ({_said(error)}); see that tritonserver runs and "
                "is ready there, and that the port is the one of gRPC (8001 by default)"
            ) from None

    def _find_again(self) -> None:
        """Check that the server, perhaps a new one at this address, has the same model."""
        try:
            served = self._facts()
        except InferenceServerException:
            return  # still away
        if served.bundle != self.served.bundle:
            raise Mismatch(
                f"{self._address} served the bundle {self.served.bundle} and now serves "
                f"{served.bundle}; open the stream anew"
            )
        self._shared = SharedFrames.of(self._client, self._address, self._ends)

    def _infer(self, image: Image, state: Sequence, timeout_s: float, end: bool = False) -> Any:
        sequence: dict[str, Any] = {"headers": self._headers}
        if self.served.sequences:
            sequence = {
                "headers": self._headers | {SEQUENCE_HEADER: str(state.number)},
                "sequence_id": state.number,
                "sequence_start": state.frames == 0,
                "sequence_end": end,
                "parameters": {"only_end": True} if end else {"frame": state.frames},
            }
        frames = image[None]
        given = triton.InferInput("image", list(frames.shape), "UINT8")
        wanted = triton.InferRequestedOutput(self.served.output.value)
        with nullcontext() if end else self._shared.lent() as region:
            if region is None:
                given.set_data_from_numpy(frames)
            else:
                region.put(frames, given, wanted)
            answer = self._client.infer(
                self._address.model,
                [given],
                outputs=[wanted],
                client_timeout=max(timeout_s, 0.001),
                **sequence,
            )
            found = self._checked(answer) if region is None else region.answer()
        if found.dtype == np.uint8 and not end and found.max() >= len(self.served.classes):
            raise RuntimeFailed(
                f"{self._address} answered with class {found.max()}, and its model has "
                f"{len(self.served.classes)}"
            )
        return found

    def _checked(self, answer: Any) -> Any:
        """The output tensor, if it has the type and shape of the model's configuration."""
        name, ends = self.served.output.value, self._ends
        output = answer.get_output(name)
        told = (output.datatype, *output.shape) if output else ()
        if told == (np_to_triton_dtype(ends.answer), *ends.answer_shape):
            with suppress(ValueError):  # fewer bytes than the shape takes
                return answer.as_numpy(name)
        raise RuntimeFailed(
            f"{self._address} answered with {told or 'nothing'}, and its configuration promises "
            f"{name} as {ends.answer} {ends.answer_shape}"
        )

    def _failure(self, error: InferenceServerException, state: Sequence) -> RuntimeFailed:
        if "DEADLINE_EXCEEDED" in str(error.status()):
            what = f"no answer from {self._address} within {self._address.patience_s:g} s"
            if state.frames == 0 and self.served.sequences:
                what += (
                    f"; it holds {self.served.sequences} sequences at once and lets others wait: "
                    "end one, or write the repository with more --sequences or --instances"
                )
            return RuntimeFailed(what)
        return RuntimeFailed(f"{self._address} stopped at frame {state.total}: {_said(error)}")

    def _statistics(self) -> "_Counted":
        try:
            found = self._client.get_inference_statistics(
                self._address.model, headers=self._headers, client_timeout=CALL_S
            ).model_stats
        except InferenceServerException:
            return _Counted(0, 0.0)
        success = [each.inference_stats.success for each in found]
        return _Counted(sum(each.count for each in success), sum(each.ns for each in success) / 1e9)


def served_variant(bundle: Bundle, address: str) -> str:
    """The variant of the bundle that a server runs, or a CPU's if the server does not answer."""
    served = ""
    with suppress(MrcfaError):
        served = TritonBackend(None, address, Options()).served.variant
    return served if served in bundle.manifest.variants else bundle.variant_name(Device.CPU)


@dataclass(frozen=True)
class _Counted:
    """The number of answers so far, and the server's seconds for them."""

    frames: int
    seconds: float


def _ends(config: Any, served: Served, place: str) -> Ends:
    """Input and output as configured. They must be those of the bundle that the server names."""
    kinds = triton.model_config_pb2.DataType
    # Where Triton batches, its shapes lack the first axis.
    first = (1,) if config.max_batch_size else ()
    told = {
        each.name: (kinds.Name(each.data_type).removeprefix("TYPE_"), *first, *each.dims)
        for each in (*config.input, *config.output)
    }
    kind, *shape = told.get(served.output.value, ("nothing",))
    if served.output is Output.MASK:
        fits = (kind, *shape) == ("UINT8", 1, *served.frame)
    else:
        area = shape[:2] == [1, len(served.classes)] and len(shape) == 4 and min(shape) > 0
        fits = kind in ("FP32", "FP16") and area
    image = served.input.shape(served.frame)
    if not fits or told.get("image") != ("UINT8", 1, *image):
        raise Damaged(
            f"{place} is configured with {told}, which is not what its bundle's frames of "
            f"{served.frame} {served.input} and {len(served.classes)} classes take and give; make "
            "its repository anew with: mrcfa triton BUNDLE -o REPOSITORY --force"
        )
    answer = np.dtype(triton_to_np_dtype(kind))
    return Ends(math.prod(image), answer, tuple(shape))


def _passes(error: InferenceServerException) -> bool:
    """True if a new sequence may succeed, now or when the server is back."""
    away = ("UNAVAILABLE", "CANCELLED")
    forgotten = ("START flag", "shared memory region", "Stub process")
    status, said = str(error.status()), _said(error)
    return any(each in status for each in away) or any(each in said for each in forgotten)


def _said(error: InferenceServerException) -> str:
    """The server's message in one line."""
    return " ".join(str(error.message()).split()) or json.dumps(str(error))
