"""The model of `--platform python`: one `Stream` per correlation id, with any backend.

Triton does not inform a model when a sequence ends because it was idle. So the number of streams is
bounded here, and the stream that was idle longest is closed first. Triton admits only as many
sequences as there may be streams, so a closed stream never belongs to a sequence of Triton's.
"""

import ctypes
import json
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError, WrongState
from mrcfa.machine.extras import load
from mrcfa.stream.stream import Stream
from mrcfa.stream.streams import Streams

START, END = 1, 2
"""Triton's request flags."""


class TritonPythonModel:
    """Model with Triton's interface: `initialize`, `execute` and `finalize`."""

    def initialize(self, args: dict[str, str]) -> None:
        self._triton: Any = load("triton_python_backend_utils")
        parameters = {
            key: value["string_value"]
            for key, value in json.loads(args["model_config"])["parameters"].items()
        }
        options: dict[str, Any] = {"precision": parameters["precision"] or None}
        if args["model_instance_kind"] == "GPU":
            options["device"] = int(args["model_instance_device_id"])
        elif threads := int(parameters["threads"]):
            options["threads"] = threads
        bundle = Path(args["model_repository"]) / args["model_version"] / "bundle"
        kind = _Batched if Bundle.open(bundle).manifest.streams > 1 else _Lone
        self._cameras = kind(bundle, parameters["backend"], options)
        self._most = int(parameters["streams"])
        self._frames: OrderedDict[int, int] = OrderedDict()
        """Sequence -> number of its frames so far; the longest idle sequence comes first."""
        self._cameras.segment({0: np.zeros(self._cameras.frame, np.uint8)})  # the warm-up
        self._cameras.leave(0)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer a batch of requests; an error affects only the request that caused it."""
        errors: dict[int, MrcfaError] = {}
        frames: dict[int, NDArray[np.uint8]] = {}
        for request in requests:
            number = request.correlation_id()
            try:
                image = self._admitted(request)
            except MrcfaError as error:
                errors[number] = error
                continue
            if image is not None:
                frames[number] = image
        masks = self._cameras.segment(frames)
        return [self._response(request, masks, errors) for request in requests]

    def finalize(self) -> None:
        self._cameras.close()

    def _admitted(self, request: Any) -> NDArray[np.uint8] | None:
        """The request's frame, with its sequence begun or checked; None for a request to end it."""
        number, parameters = request.correlation_id(), json.loads(request.parameters() or "{}")
        if parameters.get("only_end"):
            return None
        if request.flags() & START:
            self._begin(number)
        else:
            self._check(number, parameters)
        self._frames[number] += 1
        image: Any = np.from_dlpack(self._triton.get_input_tensor_by_name(request, "image"))
        return image[0]

    def _response(self, request: Any, masks: "Masks", errors: dict[int, MrcfaError]) -> Any:
        number = request.correlation_id()
        nothing = np.zeros(self._cameras.size, np.uint8)
        mask = errors.get(number) or masks.get(number, nothing)
        if request.flags() & END:
            self._end(number)
        if isinstance(mask, MrcfaError):
            return self._triton.InferenceResponse(error=self._triton.TritonError(str(mask)))
        shared = _Shared(mask[None])
        answer = self._triton.Tensor.from_dlpack("mask", shared)
        shared.taken()
        return self._triton.InferenceResponse([answer])

    def _begin(self, number: int) -> None:
        if number in self._frames:
            self._triton.Logger.log_warn(
                f"mrcfa: sequence {number} starts again at frame {self._frames[number]} without "
                "END, so its memory is cleared; if two clients use this id, give each its own id"
            )
            self._end(number)
        while len(self._frames) >= self._most:
            self._end(next(iter(self._frames)))
        self._frames[number] = 0

    def _check(self, number: int, parameters: dict[str, Any]) -> None:
        if number not in self._frames:
            raise WrongState(
                f"sequence {number} does not exist (it ended, or was idle for too long); begin a "
                "new one with the START flag"
            )
        expected = self._frames[number]
        frame = parameters.get("frame", expected)
        if frame != expected:
            raise WrongState(
                f"sequence {number} is at frame {expected}, and this is frame {frame}: another "
                "client uses the same id; begin a new sequence with the START flag"
            )
        self._frames.move_to_end(number)

    def _end(self, number: int) -> None:
        if self._frames.pop(number, None) is not None:
            self._cameras.leave(number)


Frames = Mapping[int, NDArray[np.uint8]]
Masks = Mapping[int, NDArray[np.uint8] | MrcfaError]


class _Lone:
    """One stream per camera; all streams share the loaded graphs."""

    def __init__(self, bundle: Path, backend: str, options: dict[str, Any]) -> None:
        self._open = partial(Stream, bundle, backend, **options)
        self._streams: dict[int, Stream] = {}
        self._kept = self._open()  # keeps the graphs loaded while there is no camera
        self.size = self._kept.size
        self.frame = self._kept.input.shape(self.size)

    def segment(self, frames: Frames) -> Masks:
        return {number: self._mask(number, frame) for number, frame in frames.items()}

    def leave(self, number: int) -> None:
        if number in self._streams:
            self._streams.pop(number).close()

    def close(self) -> None:
        for stream in (*self._streams.values(), self._kept):
            stream.close()

    def _mask(self, number: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8] | MrcfaError:
        if number not in self._streams:
            self._streams[number] = self._open()
        try:
            return self._streams[number](frame)
        except MrcfaError as error:
            return error


class _Batched:
    """One slot per camera: frames that arrive together run in one pass through the graphs."""

    def __init__(self, bundle: Path, backend: str, options: dict[str, Any]) -> None:
        self._streams = Streams(bundle, backend, **options)
        self.size = self._streams.size
        self.frame = self._streams.input.shape(self.size)

    def segment(self, frames: Frames) -> Masks:
        try:
            return {
                number: mask for number, mask in self._streams(frames).items() if mask is not None
            }
        except MrcfaError as error:
            return dict.fromkeys(frames, error)

    def leave(self, number: int) -> None:
        if number in self._streams.cameras:
            self._streams.leave(number)

    def close(self) -> None:
        self._streams.close()


class _Shared:
    """An array that Triton reads by DLPack, whichever NumPy its Python backend was built with.

    Backends built before NumPy 2 misread the item size of arrays: `as_numpy` then repeats one
    pixel, and `Tensor(name, array)` is empty. They also rename a capsule that they have consumed to
    a name that NumPy does not know and warns about at every frame; `taken` corrects the name.
    """

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = np.require(array, requirements=("C", "W"))

    def __dlpack__(self, **_: Any) -> Any:
        self._capsule = self._array.__dlpack__()
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def taken(self) -> None:
        _rename(self._capsule, _TAKEN)


_TAKEN = b"used_dltensor"  # a global, because a capsule keeps the address of its name, not a copy
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
