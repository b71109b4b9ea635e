"""The little of CUDA that running an engine takes, as objects that free themselves.

It is the driver's API and not the runtime's: that one knows contexts, so we stay in the one that
pycuda or the host program made, and it depends on the driver alone, so one cuda-python serves every
CUDA version from 12 on.
"""

import ctypes
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Unfit
from mrcfa.errors import MrcfaError
from mrcfa.extras import load
from mrcfa.machine import Gpu

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
_DEFAULT_STREAM = 1  # CU_STREAM_LEGACY


class CudaError(MrcfaError):
    """A CUDA call failed."""


class Cuda:
    """The context that is current where this is made, or else the device's primary one.

    `with cuda.current():` makes it current for the block, in whichever thread that runs.
    """

    def __init__(self, device: int = 0) -> None:
        self._driver = load("cuda.bindings.driver")
        try:
            self.call("cuInit", 0)
        except (CudaError, RuntimeError) as error:
            raise Unfit(f"no GPU can be used here: {error}") from None
        self._context = self.call("cuCtxGetCurrent")
        if not int(self._context):
            try:
                handle = self.call("cuDeviceGet", device)
            except CudaError:
                raise MrcfaError(
                    f"there is no GPU {device}; mrcfa doctor lists those here"
                ) from None
            self._context = self.call("cuDevicePrimaryCtxRetain", handle)
        with self.current():
            self._device = self.call("cuCtxGetDevice")

    @contextmanager
    def current(self) -> Iterator[None]:
        self.call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    @property
    def gpu(self) -> Gpu:
        kinds = self._driver.CUdevice_attribute
        major, minor = (
            self.call("cuDeviceGetAttribute", kind, self._device)
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        name: bytes = self.call("cuDeviceGetName", 256, self._device)
        return Gpu(name.partition(b"\0")[0].decode(), 10 * major + minor)

    def call(self, name: str, *arguments: Any) -> Any:
        """One function of the driver: its result, or an error that names it."""
        code, *results = getattr(self._driver, name)(*arguments)
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise CudaError(f"CUDA's {name} failed: {code.name}")
        return results[0] if results else None

    def freed_with(self, owner: object, function: str, handle: Any) -> None:
        """Give the handle back when its owner goes, or at the latest when the process does."""
        weakref.finalize(owner, self._free, function, handle)

    def _free(self, function: str, handle: Any) -> None:
        """Fails only where the context went first, and took the handle with it."""
        with suppress(CudaError), self.current():
            self.call(function, handle)

    @property
    def capture_mode(self) -> Any:
        """Other threads may go on allocating while this one captures."""
        return self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

    def stream_of(self, handle: int) -> Any:
        return self._driver.CUstream(handle)


class DeviceArray:
    """Device memory of one tensor; torch, CuPy, numba and pycuda read it without a copy."""

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        handle = cuda.call("cuMemAlloc", self.nbytes)
        cuda.freed_with(self, "cuMemFree", handle)
        self.ptr = int(handle)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """`stream` is None: whoever gets this object gets it after its stream was waited for."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            "stream": None,
        }


def pinned_array(cuda: Cuda, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Host memory that the GPU copies from and to by itself, beside other work."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    address = int(cuda.call("cuMemHostAlloc", nbytes, 0))
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    cuda.freed_with(memory, "cuMemFreeHost", address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)


@dataclass(frozen=True)
class DeviceFrame:
    """A frame that somebody else has on the GPU."""

    ptr: int
    stream: int | None
    """The stream that writes it; None if nothing needs to be waited for."""

    @classmethod
    def of(cls, frame: Any, shape: tuple[int, ...]) -> "DeviceFrame":
        """Read `__cuda_array_interface__`, which must tell of contiguous uint8 of this shape."""
        facts = frame.__cuda_array_interface__
        if facts["typestr"] != "|u1" or tuple(facts["shape"]) != shape:
            raise MrcfaError(
                f"a frame on the GPU is uint8 of shape {shape}, not {facts['typestr']} of "
                f"{tuple(facts['shape'])}; export with --frame to fix another size"
            )
        _, width, colours = shape
        if tuple(facts.get("strides") or ()) not in ((), (width * colours, colours, 1)):
            raise MrcfaError("a frame on the GPU must be contiguous; copy it first")
        stream = facts.get("stream") if facts.get("version", 0) >= 3 else _DEFAULT_STREAM
        return cls(facts["data"][0], stream)


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

    def copy(self, target: DeviceArray, source: DeviceFrame) -> None:
        if source.stream is not None:
            self._wait_for(source.stream)
        self._call("cuMemcpyDtoDAsync", target.ptr, source.ptr, target.nbytes)

    def zero(self, target: DeviceArray) -> None:
        self._call("cuMemsetD8Async", target.ptr, 0, target.nbytes)

    def synchronize(self) -> None:
        self._call("cuStreamSynchronize")

    def mark(self) -> "CudaEvent":
        """A point in this stream, to tell later how long what lies between two of them took."""
        event = CudaEvent(self._cuda)
        self._cuda.call("cuEventRecord", event.handle, self._handle)
        return event

    def capture(self, work: Callable[[], None]) -> "CudaGraph":
        """What `work` queues, recorded instead of run."""
        self._call_with("cuStreamBeginCapture", self._cuda.capture_mode)
        try:
            work()
        except BaseException:
            with suppress(CudaError):
                self._call("cuStreamEndCapture")
            raise
        return CudaGraph(self._cuda, self._call("cuStreamEndCapture"))

    def launch(self, graph: "CudaGraph") -> None:
        self._cuda.call("cuGraphLaunch", graph.handle, self._handle)

    def _wait_for(self, stream: int) -> None:
        event = CudaEvent(self._cuda)
        self._cuda.call("cuEventRecord", event.handle, self._cuda.stream_of(stream))
        self._call_with("cuStreamWaitEvent", event.handle, 0)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Functions whose last argument is the stream."""
        return self._cuda.call(name, *arguments, self._handle)

    def _call_with(self, name: str, *arguments: Any) -> Any:
        """Functions whose first argument is the stream."""
        return self._cuda.call(name, self._handle, *arguments)


class CudaEvent:
    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.handle = cuda.call("cuEventCreate", 0)
        cuda.freed_with(self, "cuEventDestroy", self.handle)

    def seconds_since(self, earlier: "CudaEvent") -> float:
        """Once both were waited for."""
        milliseconds: float = self._cuda.call("cuEventElapsedTime", earlier.handle, self.handle)
        return milliseconds / 1000


class CudaGraph:
    """Recorded work, with the addresses it had when it was recorded."""

    def __init__(self, cuda: Cuda, recorded: Any) -> None:
        self.handle = cuda.call("cuGraphInstantiate", recorded, 0)
        cuda.freed_with(self, "cuGraphExecDestroy", self.handle)
        cuda.call("cuGraphDestroy", recorded)
