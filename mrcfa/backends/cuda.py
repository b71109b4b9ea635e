"""Memory, streams, events and graphs on a GPU, as objects that free themselves."""

import ctypes
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends.cuda_context import Cuda, CudaError
from mrcfa.backends.releases import none_released
from mrcfa.errors import InvalidValue, Mismatch

__all__ = [
    "Cuda",
    "CudaError",
    "CudaEvent",
    "CudaGraph",
    "CudaStream",
    "DeviceArray",
    "DeviceFrame",
    "pinned_array",
]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
_DEFAULT_STREAM = 1  # CU_STREAM_LEGACY
_THREADS_DEFAULT_STREAM = 2  # CU_STREAM_PER_THREAD
_WITHOUT_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class DeviceArray:
    """The memory of one tensor on the GPU; torch, CuPy, numba and pycuda read it without a copy."""

    _whole: "DeviceArray | None" = None
    """The array that a row is part of."""

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        handle = cuda.call("cuMemAlloc", self.nbytes)
        cuda.freed_with(self, "cuMemFree", handle)
        self.ptr = int(handle)

    def rows(self) -> "list[DeviceArray]":
        """The parts along the first axis. The memory is freed when neither it nor a row is used."""
        return [self._row(number) for number in range(self.shape[0])]

    def _row(self, number: int) -> "DeviceArray":
        row = copy(self)
        row._whole = self
        row.shape, row.nbytes = self.shape[1:], self.nbytes // self.shape[0]
        row.ptr += number * row.nbytes
        return row

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """`stream` is None, because users get this array after its stream was waited for."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            "stream": None,
        }


def pinned_array(cuda: Cuda, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Host memory that the GPU reads and writes by itself, beside other work."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    address = int(cuda.call("cuMemHostAlloc", nbytes, 0))
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    cuda.freed_with(memory, "cuMemFreeHost", address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)


@dataclass(frozen=True)
class DeviceFrame:
    """A frame on the GPU that belongs to the caller."""

    ptr: int
    stream: int
    """The stream that writes it; the work that is in the stream now is waited for."""

    @classmethod
    def of(cls, frame: Any, shape: tuple[int, ...], cuda: Cuda) -> "DeviceFrame":
        """Read `__cuda_array_interface__`, which must describe contiguous uint8 of this shape.

        The frame must be on the GPU of `cuda`: to copy from another one needs peer access, which
        not all pairs of GPUs have, so one rule holds for all.
        """
        facts = frame.__cuda_array_interface__
        if facts["typestr"] != "|u1" or tuple(facts["shape"]) != shape:
            kind = InvalidValue if facts["typestr"] != "|u1" else Mismatch
            raise kind(
                f"a frame on the GPU is uint8 of shape {shape}, not {facts['typestr']} of "
                f"{tuple(facts['shape'])}; export with --frame to fix another size"
            )
        packed = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        if tuple(facts.get("strides") or ()) not in ((), packed):
            raise InvalidValue("a frame on the GPU must be contiguous; copy it first")
        address = facts["data"][0]
        if not cuda.alone and (other := cuda.index_of(address)) != cuda.index:
            raise Mismatch(
                f"the frame is on GPU {other} and its stream works on GPU {cuda.index}; copy the "
                f"frame to GPU {cuda.index}, or open the stream with device={other}"
            )
        return cls(address, _writing_stream(frame, facts))


def _writing_stream(frame: Any, facts: dict[str, Any]) -> int:
    """The stream to wait for; docs/gpu.md has the table.

    Version 3 of the interface names the stream. None there means that nothing is under way, but a
    copy from ordinary host memory returns before it is done, so the default stream is waited for
    all the same. Version 2 names no stream. PyTorch uses version 2, so its current stream is taken
    from PyTorch itself.
    """
    if facts.get("version", 0) >= 3:
        stream = facts.get("stream")
        if stream == 0:
            raise InvalidValue(
                "a frame on the GPU has stream 0, which __cuda_array_interface__ forbids as "
                "ambiguous; it is 1 for the default stream and 2 for the thread's own"
            )
        return _DEFAULT_STREAM if stream is None else int(stream)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(frame, torch.Tensor):
        return int(torch.cuda.current_stream(frame.device).cuda_stream) or _DEFAULT_STREAM
    return _DEFAULT_STREAM


class CudaStream:
    """A queue of work on the GPU."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._handle = cuda.call("cuStreamCreate", _NON_BLOCKING)
        cuda.freed_with(self, "cuStreamDestroy", self._handle)
        self.address = int(self._handle)

    def upload(self, target: DeviceArray, source: NDArray[Any]) -> None:
        self._call("cuMemcpyHtoDAsync", target.ptr, source.ctypes.data, target.nbytes)

    def download(self, target: NDArray[Any], source: DeviceArray) -> None:
        self._call("cuMemcpyDtoHAsync", target.ctypes.data, source.ptr, source.nbytes)

    def copy(self, target: DeviceArray, source: DeviceFrame | DeviceArray) -> None:
        if isinstance(source, DeviceFrame):
            self._wait_for(source)
        self._call("cuMemcpyDtoDAsync", target.ptr, source.ptr, target.nbytes)

    def zero(self, target: DeviceArray) -> None:
        self._call("cuMemsetD8Async", target.ptr, 0, target.nbytes)

    def synchronize(self) -> None:
        self._call("cuStreamSynchronize")

    def mark(self, timed: bool = False) -> "CudaEvent":
        """Record an event: a point in this stream to wait for, or to measure time between."""
        event = CudaEvent(self._cuda, 0 if timed else _WITHOUT_TIMING)
        self._cuda.call("cuEventRecord", event.handle, self._handle)
        return event

    def wait(self, event: "CudaEvent") -> None:
        """Let later work of this stream wait for the event; the host does not wait."""
        self._call_with("cuStreamWaitEvent", event.handle, 0)

    def capture(self, work: Callable[[], None]) -> "CudaGraph":
        """Record what `work` queues instead of running it; if that fails, nothing is queued.

        Other threads may allocate memory meanwhile.
        """
        modes = self._cuda.kind("CUstreamCaptureMode")
        with none_released():
            self._call_with("cuStreamBeginCapture", modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            try:
                work()
            except BaseException:
                with suppress(CudaError):
                    self._cuda.call("cuGraphDestroy", self._call("cuStreamEndCapture"))
                raise
            recorded = self._call("cuStreamEndCapture")
        return CudaGraph(self._cuda, recorded)

    def launch(self, graph: "CudaGraph") -> None:
        self._cuda.call("cuGraphLaunch", graph.handle, self._handle)

    def _wait_for(self, frame: DeviceFrame) -> None:
        """Wait for the frame's stream, whose context may be another one of this GPU.

        An event is recorded in streams of its own context alone, and any stream may wait for it.
        Every context has default streams; those of the context that owns the frame are meant.
        """
        stream = self._cuda.kind("CUstream")(frame.stream)
        if frame.stream in (_DEFAULT_STREAM, _THREADS_DEFAULT_STREAM):
            owner = self._cuda.owner_of(frame.ptr)
        else:
            owner = self._cuda.call("cuStreamGetCtx", stream)
        with self._cuda.current(owner):
            event = CudaEvent(self._cuda, _WITHOUT_TIMING)
            self._cuda.call("cuEventRecord", event.handle, stream)
        self.wait(event)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function whose last argument is the stream."""
        return self._cuda.call(name, *arguments, self._handle)

    def _call_with(self, name: str, *arguments: Any) -> Any:
        """Call a function whose first argument is the stream."""
        return self._cuda.call(name, self._handle, *arguments)


class CudaEvent:
    """A point in a stream."""

    def __init__(self, cuda: Cuda, flags: int) -> None:
        self._cuda = cuda
        self.handle = cuda.call("cuEventCreate", flags)
        cuda.freed_with(self, "cuEventDestroy", self.handle)

    def synchronize(self) -> None:
        """Wait on the host until the stream reaches this event, and no longer."""
        self._cuda.call("cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: "CudaEvent") -> float:
        """The time between two timed events, once both were waited for."""
        milliseconds: float = self._cuda.call("cuEventElapsedTime", earlier.handle, self.handle)
        return milliseconds / 1000


class CudaGraph:
    """Recorded work, which runs on the addresses that it was recorded with.

    An empty graph is an error. CUDA would launch it, and buffers would keep old results.
    """

    def __init__(self, cuda: Cuda, recorded: Any) -> None:
        try:
            _, nodes = cuda.call("cuGraphGetNodes", recorded)
            self.nodes = int(nodes)
            """The number of its nodes: kernels, copies and fills."""
            if not self.nodes:
                raise CudaError("CUDA recorded an empty graph")
            self.handle = cuda.call("cuGraphInstantiate", recorded, 0)
        finally:
            cuda.call("cuGraphDestroy", recorded)
        cuda.freed_with(self, "cuGraphExecDestroy", self.handle)
