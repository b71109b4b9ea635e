"""A GPU in host memory: the part of CUDA's driver API that mrcfa uses.

Device memory is host memory whose addresses are checked, a context must be current where one has to
be and takes all that was made in it with it when it goes, and work waits in its stream until
somebody waits for it: the host for the stream or for an event, or another stream for an event. So a
wrong or freed address, memories that do not swap, a graph replayed for the other parity and a frame
or a result read too early raise or change the numbers.

A GPU may also run what nobody waits for yet. With `Driver.rivals` other streams run ahead as far as
their events let them, in an order that it draws: what two streams share without an event between
them is then overwritten too early, or read too late.
"""

import ctypes
import os
import threading
from enum import Enum, IntEnum
from itertools import count
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
from fake_streams import Queue, Wait, Work


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901


class CUdevice_attribute(Enum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUpointer_attribute(Enum):
    CU_POINTER_ATTRIBUTE_CONTEXT = 1
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9


class CUstreamCaptureMode(Enum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUstream:
    def __init__(self, address: int = 0) -> None:
        self._address = address

    def __int__(self) -> int:
        return self._address


class Driver(ModuleType):
    """`cuda.bindings.driver` for imagined devices of a kind. Its functions carry CUDA's names."""

    CUresult, CUstream = CUresult, CUstream
    CUdevice_attribute, CUstreamCaptureMode = CUdevice_attribute, CUstreamCaptureMode
    CUpointer_attribute = CUpointer_attribute
    PRIMARY, LEGACY, PER_THREAD = 0xC0, 1, 2
    """The primary context of device 0, after which those of the others come; streams' handles."""

    def __init__(self, name: str = "Quadro RTX 6000", sm: int = 75, devices: int = 1) -> None:
        super().__init__("cuda.bindings.driver")
        self.device_name, self.sm, self.devices = name, sm, devices
        self.version = 13000
        self.fault: CUresult | None = None
        """The error of every call once the GPU went away."""
        self.capture_fails = self.captures_nothing = False
        self.starts, self.capturable, self.compilations = True, True, 0
        self.executions: WeakSet[Any] = WeakSet()
        """TensorRT: whether it starts and may be recorded, what it compiled, its contexts."""
        self.destroyed: set[int] = set()
        self.misuses: list[str] = []
        """Misuses that would have crashed the process."""
        self._threads = threading.local()
        self._numbers = count(0x1000)
        self.memory: dict[int, tuple[Any, str, int]] = {}
        self.streams: dict[Any, Queue] = {
            number: Queue(self.PRIMARY) for number in (self.LEGACY, self.PER_THREAD)
        }
        """By handle; the default ones of other contexts than the primary by handle and context."""
        self.pooled: set[int] = set()
        """Addresses of memory that no context owns."""
        self.graphs: dict[int, list[Work]] = {}
        self.launches = 0
        self.rivals: Random | None = None
        """Draws which streams run ahead of their time; None runs only what is waited for."""
        self.executing = threading.RLock()

    # What the double itself offers to tests and to the fake TensorRT.

    @property
    def contexts(self) -> list[int]:
        """The calling thread's stack of contexts."""
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        return self._threads.stack

    def view(self, address: int, nbytes: int, kind: str = "device") -> np.ndarray:
        """The bytes at an address, which must lie in memory of that kind."""
        for start, (block, found, _) in self.memory.items():
            if found == kind and start <= address and address + nbytes <= start + len(block):
                return np.frombuffer(block, np.uint8, nbytes, address - start)
        raise AssertionError(f"{nbytes} bytes at {address:#x} are no {kind} memory")

    def queue(self, stream: Any) -> Queue:
        assert self.contexts, "no context is current"
        here = self.contexts[-1]
        if int(stream) in (self.LEGACY, self.PER_THREAD) and here != self.PRIMARY:
            return self.streams.setdefault((int(stream), here), Queue(here))
        found = self.streams[int(stream)]
        assert found.context == here, "another context"
        return found

    def drain(self, queue: Queue) -> None:
        Wait(self, queue, queue.end)()

    def misuse(self, what: str) -> None:
        self.misuses.append(what)
        os.write(2, f"misuse: {what}\n".encode())  # at the interpreter's exit nothing else is left

    def destroy_context(self, context: int) -> None:
        """Destroy the context with all that was made in it, as pycuda does at exit."""
        self.destroyed.add(context)
        self.contexts[:] = [each for each in self.contexts if each != context]
        gone = [address for address, (_, _, owner) in self.memory.items() if owner == context]
        for address in gone:
            del self.memory[address]

    def spoil(self, threads: tuple[int, ...] = ()) -> bool:
        """End recordings in the current context, of these threads or of all; False if none is."""
        spoilt = [
            queue
            for queue in list(self.streams.values())
            if queue.recording is not None
            and queue.context == self.contexts[-1]
            and (queue.recorder in threads or not threads)
        ]
        for queue in spoilt:
            queue.spoilt = True
        return bool(spoilt)

    def device_bytes(self) -> int:
        return sum(len(block) for block, kind, _ in self.memory.values() if kind == "device")

    def check(self, found: Any, wanted: Any) -> None:
        """Masks or logits of ONNX Runtime, which runs the double's engines too."""
        np.testing.assert_array_equal(found, wanted)

    def check_cache(self, found: bytes, wanted: bytes) -> None:
        assert found == wanted

    def check_seconds(self, seconds: float) -> None:
        assert seconds == 0.002

    # Contexts and the device

    def cuInit(self, flags):
        return (CUresult.CUDA_SUCCESS if self.devices else CUresult.CUDA_ERROR_NO_DEVICE,)

    def cuDriverGetVersion(self):
        return CUresult.CUDA_SUCCESS, self.version

    def cuDeviceGetCount(self):
        return CUresult.CUDA_SUCCESS, self.devices

    def cuDeviceGet(self, ordinal):
        if ordinal >= self.devices:
            return CUresult.CUDA_ERROR_INVALID_DEVICE, 0
        return CUresult.CUDA_SUCCESS, ordinal

    def cuDevicePrimaryCtxRetain(self, device):
        return CUresult.CUDA_SUCCESS, self.PRIMARY + device

    def cuCtxGetCurrent(self):
        return CUresult.CUDA_SUCCESS, self.contexts[-1] if self.contexts else 0

    def cuCtxPushCurrent(self, context):
        if int(context) in self.destroyed:
            return (CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,)
        self.contexts.append(int(context))
        return (CUresult.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self):
        return CUresult.CUDA_SUCCESS, self.contexts.pop()

    def cuCtxGetDevice(self):
        assert self.contexts, "no context is current"
        ordinal = self.contexts[-1] - self.PRIMARY
        return CUresult.CUDA_SUCCESS, ordinal if 0 <= ordinal < self.devices else 0

    def cuDeviceGetAttribute(self, attribute, device):
        major = CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        return CUresult.CUDA_SUCCESS, divmod(self.sm, 10)[attribute is not major]

    def cuDeviceGetName(self, length, device):
        return CUresult.CUDA_SUCCESS, self.device_name.encode().ljust(length, b"\0")

    # Memory

    def cuMemAlloc(self, nbytes):
        return self._allocate(nbytes, "device")

    def cuMemHostAlloc(self, nbytes, flags):
        return self._allocate(nbytes, "pinned")

    def _allocate(self, nbytes, kind):
        if not self.contexts or self.fault:
            return self.fault or CUresult.CUDA_ERROR_INVALID_CONTEXT, 0
        if self.spoil((threading.get_ident(),)):
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 0
        block = (ctypes.c_uint8 * nbytes)()
        address = ctypes.addressof(block)
        ctypes.memset(address, 0xFF, nbytes)  # NaNs: fresh memory holds nothing to rely on
        self.memory[address] = block, kind, self.contexts[-1]
        return CUresult.CUDA_SUCCESS, address

    def cuMemFree(self, address):
        if not self.contexts:
            self.misuse("memory is freed and no context is current")
        elif self.spoil((threading.get_ident(),)):
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        for queue in list(self.streams.values()):
            self.drain(queue)
        del self.memory[int(address)]
        return (CUresult.CUDA_SUCCESS,)

    cuMemFreeHost = cuMemFree

    def cuPointerGetAttribute(self, attribute, address):
        for start, (block, _, context) in self.memory.items():
            if start <= int(address) < start + len(block):
                if attribute is CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT:
                    return CUresult.CUDA_SUCCESS, 0 if address in self.pooled else context
                ordinal = context - self.PRIMARY
                return CUresult.CUDA_SUCCESS, ordinal if 0 <= ordinal < self.devices else 0
        return CUresult.CUDA_ERROR_INVALID_VALUE, 0

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        return self._copy(target, "device", source, "pinned", nbytes, stream)

    def cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        return self._copy(target, "pinned", source, "device", nbytes, stream)

    def cuMemcpyDtoDAsync(self, target, source, nbytes, stream):
        return self._copy(target, "device", source, "device", nbytes, stream)

    def _copy(self, target, to, source, origin, nbytes, stream):
        def copy():
            self.view(target, nbytes, to)[:] = self.view(source, nbytes, origin)

        self.queue(stream).add(copy)
        return (CUresult.CUDA_SUCCESS,)

    def cuMemsetD8Async(self, target, value, nbytes, stream):
        self.queue(stream).add(lambda: self.view(target, nbytes).fill(value))
        return (CUresult.CUDA_SUCCESS,)

    # Streams, events and graphs

    def cuStreamCreate(self, flags):
        stream = CUstream(next(self._numbers))
        self.streams[int(stream)] = Queue(self.contexts[-1])
        return CUresult.CUDA_SUCCESS, stream

    def cuStreamGetCtx(self, stream):
        return CUresult.CUDA_SUCCESS, self.streams[int(stream)].context

    def cuStreamDestroy(self, stream):
        self.drain(self.streams[int(stream)])
        del self.streams[int(stream)]
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, stream):
        queue = self.queue(stream)
        if self.fault:
            return (self.fault,)
        assert queue.recording is None, "nobody waits for a stream that records"
        self.drain(queue)
        return (CUresult.CUDA_SUCCESS,)

    def cuCtxSynchronize(self):
        if self.fault:
            return (self.fault,)
        if self.spoil():
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        for queue in list(self.streams.values()):
            if queue.context == self.contexts[-1]:
                self.drain(queue)
        return (CUresult.CUDA_SUCCESS,)

    def cuEventCreate(self, flags):
        return CUresult.CUDA_SUCCESS, SimpleNamespace(wait=None, context=self.contexts[-1])

    def cuEventRecord(self, event, stream):
        queue = self.queue(stream)
        if event.context != queue.context:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        event.wait = Wait(self, queue, queue.end)
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamWaitEvent(self, stream, event, flags):
        self.queue(stream).add(event.wait)
        return (CUresult.CUDA_SUCCESS,)

    def cuEventSynchronize(self, event):
        if self.fault:
            return (self.fault,)
        event.wait()
        return (CUresult.CUDA_SUCCESS,)

    def cuEventElapsedTime(self, start, end):
        assert end.wait.reached, "the event was not waited for"
        return CUresult.CUDA_SUCCESS, 2.0

    def cuEventDestroy(self, event):
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamBeginCapture(self, stream, mode):
        queue = self.queue(stream)
        queue.recording, queue.recorder, queue.spoilt = [], threading.get_ident(), False
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream):
        queue = self.queue(stream)
        recorded, queue.recording = queue.recording, None
        if self.capture_fails or queue.spoilt:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, None
        return CUresult.CUDA_SUCCESS, [] if self.captures_nothing else recorded

    def cuGraphGetNodes(self, recorded, length=0):
        return CUresult.CUDA_SUCCESS, [object()] * length, len(recorded)

    def cuGraphInstantiate(self, recorded, flags):
        number = next(self._numbers)
        self.graphs[number] = recorded
        return CUresult.CUDA_SUCCESS, number

    def cuGraphDestroy(self, recorded):
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, number):
        del self.graphs[number]
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphLaunch(self, number, stream):
        self.launches += 1
        for work in self.graphs[number]:
            self.queue(stream).add(work)
        return (CUresult.CUDA_SUCCESS,)
