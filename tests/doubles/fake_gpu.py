"""A GPU in host memory: the part of CUDA's driver API and of TensorRT's runtime that mrcfa uses.

An engine here is an ONNX file, run by ONNX Runtime. Device memory is host memory whose addresses
are checked, a context must be current where one has to be, and work waits in its stream until
somebody waits for it. So a wrong or freed address, memories that do not swap, a graph replayed for
the other parity and a result read too early all raise or change the numbers.
"""

import ctypes
import threading
from collections.abc import Callable
from enum import Enum, IntEnum
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort

Work = Callable[[], None]
DTYPES = {"float": np.float32, "float16": np.float16, "int32": np.int32, "uint8": np.uint8}


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201


class CUdevice_attribute(Enum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUstreamCaptureMode(Enum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUstream:
    def __init__(self, address: int = 0) -> None:
        self._address = address

    def __int__(self) -> int:
        return self._address


class Queue:
    """A stream: work that has not run yet, and what is being recorded instead of queued."""

    def __init__(self, context: int) -> None:
        self.context, self.waiting = context, list[Work]()
        self.recording: list[Work] | None = None

    def add(self, work: Work) -> None:
        (self.waiting if self.recording is None else self.recording).append(work)

    def drain(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Driver(ModuleType):
    """`cuda.bindings.driver` for one imagined device. Its functions carry CUDA's names."""

    CUresult, CUstream = CUresult, CUstream
    CUdevice_attribute, CUstreamCaptureMode = CUdevice_attribute, CUstreamCaptureMode
    PRIMARY, LEGACY = 0xC0, 1

    def __init__(self, name: str = "Quadro RTX 6000", sm: int = 75, devices: int = 1) -> None:
        super().__init__("cuda.bindings.driver")
        self.device_name, self.sm, self.devices = name, sm, devices
        self._threads = threading.local()
        self._numbers = count(0x1000)
        self.memory: dict[int, tuple[Any, str, int]] = {}
        self.streams = {self.LEGACY: Queue(self.PRIMARY)}
        self.graphs: dict[int, list[Work]] = {}
        self.launches = 0

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
        found = self.streams[int(stream)]
        assert self.contexts, "no context is current"
        assert found.context == self.contexts[-1] or int(stream) == self.LEGACY, "another context"
        return found

    def device_bytes(self) -> int:
        return sum(len(block) for block, kind, _ in self.memory.values() if kind == "device")

    # Contexts and the device

    def cuInit(self, flags):
        return (CUresult.CUDA_SUCCESS if self.devices else CUresult.CUDA_ERROR_NO_DEVICE,)

    def cuDeviceGet(self, ordinal):
        if ordinal >= self.devices:
            return CUresult.CUDA_ERROR_INVALID_DEVICE, 0
        return CUresult.CUDA_SUCCESS, ordinal

    def cuDevicePrimaryCtxRetain(self, device):
        return CUresult.CUDA_SUCCESS, self.PRIMARY

    def cuCtxGetCurrent(self):
        return CUresult.CUDA_SUCCESS, self.contexts[-1] if self.contexts else 0

    def cuCtxPushCurrent(self, context):
        self.contexts.append(int(context))
        return (CUresult.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self):
        return CUresult.CUDA_SUCCESS, self.contexts.pop()

    def cuCtxGetDevice(self):
        assert self.contexts, "no context is current"
        return CUresult.CUDA_SUCCESS, 0

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
        if not self.contexts:
            return CUresult.CUDA_ERROR_INVALID_CONTEXT, 0
        assert not any(queue.recording is not None for queue in self.streams.values())
        block = (ctypes.c_uint8 * nbytes)()
        address = ctypes.addressof(block)
        ctypes.memset(address, 0xFF, nbytes)  # NaNs: fresh memory holds nothing to rely on
        self.memory[address] = block, kind, self.contexts[-1]
        return CUresult.CUDA_SUCCESS, address

    def cuMemFree(self, address):
        for queue in self.streams.values():
            queue.drain()
        del self.memory[int(address)]
        return (CUresult.CUDA_SUCCESS,)

    cuMemFreeHost = cuMemFree

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

    def cuStreamDestroy(self, stream):
        self.streams.pop(int(stream)).drain()
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, stream):
        queue = self.queue(stream)
        assert queue.recording is None, "nobody waits for a stream that records"
        queue.drain()
        return (CUresult.CUDA_SUCCESS,)

    def cuEventCreate(self, flags):
        return CUresult.CUDA_SUCCESS, SimpleNamespace(queue=None)

    def cuEventRecord(self, event, stream):
        event.queue = self.queue(stream)
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamWaitEvent(self, stream, event, flags):
        self.queue(stream).add(event.queue.drain)
        return (CUresult.CUDA_SUCCESS,)

    def cuEventElapsedTime(self, start, end):
        assert not end.queue.waiting, "the event was not waited for"
        return CUresult.CUDA_SUCCESS, 2.0

    def cuEventDestroy(self, event):
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamBeginCapture(self, stream, mode):
        self.queue(stream).recording = []
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream):
        queue = self.queue(stream)
        recorded, queue.recording = queue.recording, None
        return CUresult.CUDA_SUCCESS, recorded

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


class ILogger:
    def log(self, severity: int, message: str) -> None:
        raise NotImplementedError  # abstract in TensorRT too


class IExecutionContext:
    def __init__(self, engine: "ICudaEngine") -> None:
        self._engine, self._addresses = engine, dict[str, int]()
        self._ready = False

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return name in self._engine.tensors

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine, addresses = self._engine, dict(self._addresses)
        queue = engine.driver.queue(stream_handle)
        if addresses.keys() != engine.tensors.keys():
            return engine.fail(f"addresses of {engine.tensors.keys() - addresses.keys()} missing")
        if not self._ready and queue.recording is not None:
            return engine.fail("the first run cannot be recorded")
        self._ready = True
        queue.add(lambda: engine.run(addresses))
        return True


class ICudaEngine:
    def __init__(self, driver: Driver, session: ort.InferenceSession, logger: ILogger) -> None:
        self.driver, self._session, self._logger = driver, session, logger
        self.tensors = {
            value.name: (DTYPES[value.type[len("tensor(") : -1]], tuple(value.shape))
            for value in (*session.get_inputs(), *session.get_outputs())
        }

    def create_execution_context(self) -> IExecutionContext:
        assert self.driver.contexts, "no context is current"
        return IExecutionContext(self)

    def fail(self, reason: str) -> bool:
        self._logger.log(
            1, f"IExecutionContext::enqueueV3: Error Code 3: API Usage Error ({reason})"
        )
        return False

    def run(self, addresses: dict[str, int]) -> None:
        tensors = {
            name: self.driver.view(addresses[name], int(np.prod(shape)) * np.dtype(dtype).itemsize)
            .view(dtype)
            .reshape(shape)
            for name, (dtype, shape) in self.tensors.items()
        }
        inputs = {value.name: tensors[value.name].copy() for value in self._session.get_inputs()}
        outputs = [value.name for value in self._session.get_outputs()]
        for name in outputs:
            tensors[name].view(np.uint8).fill(0xFF)  # an engine may write outputs in any order
        for name, answer in zip(outputs, self._session.run(outputs, inputs), strict=True):
            tensors[name][...] = answer


class Runtime:
    engine_host_code_allowed = False
    driver: Driver

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(
                serialized_engine, options, providers=["CPUExecutionProvider"]
            )
        except Exception:
            self._logger.log(
                1, "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (bad magic tag)"
            )
            return None
        return ICudaEngine(self.driver, session, self._logger)


class IPluginRegistry:
    def __init__(self) -> None:
        self.creators = set[tuple[str, str, str]]()

    def get_creator(self, name: str, version: str, namespace: str) -> object | None:
        return object() if (name, version, namespace) in self.creators else None

    def load_library(self, plugin_path: str) -> object | None:
        return None


def fake_tensorrt(driver: Driver, name: str, version: str) -> ModuleType:
    """A module like `tensorrt` or `tensorrt_rtx`, on that driver's device."""
    module: Any = ModuleType(name)
    registry = IPluginRegistry()
    module.__version__ = version
    module.ILogger = ILogger
    module.Runtime = type("Runtime", (Runtime,), {"driver": driver})
    module.get_plugin_registry = lambda: registry
    return module
