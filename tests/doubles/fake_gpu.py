"""TensorRT and TensorRT-RTX on the GPU of `fake_cuda`: the part of their runtime that mrcfa uses.

An engine here is an ONNX file, run by ONNX Runtime. What NVIDIA's would crash on is noted as a
misuse: an object that is destroyed while its CUDA context is not current, or while it is at work. A
context has to be given its scratch memory, and is compiled, which the double counts, unless its
cache knows it. A graph does not run once its context got other addresses. An engine takes time:
between its begin and its end other streams may run.
"""

import hashlib
import json
from enum import Enum, IntEnum
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort
from fake_cuda import CUresult, Driver

__all__ = ["CUresult", "Driver", "fake_tensorrt"]

DTYPES = {"float": np.float32, "float16": np.float16, "int32": np.int32, "uint8": np.uint8}


class DataType(Enum):
    FLOAT = np.float32
    HALF = np.float16
    INT32 = np.int32
    UINT8 = np.uint8


class ExecutionContextAllocationStrategy(IntEnum):
    STATIC = 0
    USER_MANAGED = 2


class ProfilingVerbosity(IntEnum):
    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class ILogger:
    def log(self, severity: int, message: str) -> None:
        raise NotImplementedError  # abstract in TensorRT too


class _Object:
    """Lives in the CUDA context that was current where it was made, and must end in it."""

    def __init__(self, driver: Driver) -> None:
        assert driver.contexts, "no context is current"
        self._driver, self._home = driver, driver.contexts[-1]
        driver.spoil()  # TensorRT may wait for the whole context where it makes an object

    def __del__(self) -> None:
        if hasattr(self, "_driver") and self._driver.contexts[-1:] != [self._home]:
            what = "gone" if self._home in self._driver.destroyed else "not current"
            self._driver.misuse(f"{type(self).__name__} ends and its context is {what}")


class IRuntimeCache(_Object):
    """Kernels by name. What it writes opens on the GPU, with the version, that wrote it."""

    def __init__(self, driver: Driver, logger: ILogger) -> None:
        super().__init__(driver)
        self._logger, self._kernels = logger, set[str]()

    def serialize(self) -> bytes:
        return json.dumps([*self._origin(), sorted(self._kernels)]).encode()

    def deserialize(self, blob: bytes) -> bool:
        assert self._driver.contexts, "no context is current"
        *origin, kernels = json.loads(blob)
        if origin != self._origin():
            self._logger.log(1, "IRuntimeCache::deserialize: Error Code 3: API Usage Error (SKU)")
            return False
        self._kernels |= set(kernels)
        return True

    def _origin(self) -> list[str]:
        return [self._driver.device_name, str(self._driver.version)]


class IRuntimeConfig(_Object):
    def __init__(self, engine: "ICudaEngine") -> None:
        super().__init__(engine._driver)
        self._engine, self._cache = engine, None
        self._strategy = ExecutionContextAllocationStrategy.STATIC

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache(self._driver, self._engine._logger)

    def set_runtime_cache(self, cache: IRuntimeCache | None = None) -> bool:
        self._cache = cache
        return True

    def set_execution_context_allocation_strategy(
        self, strategy: ExecutionContextAllocationStrategy
    ) -> None:
        self._strategy = strategy


class IExecutionContext(_Object):
    nvtx_verbosity = ProfilingVerbosity.DETAILED  # as engines are built

    def __init__(self, engine: "ICudaEngine", strategy: int, cache: IRuntimeCache | None) -> None:
        super().__init__(engine._driver)
        self._engine, self._addresses = engine, dict[str, int]()
        self._ready = False
        self._scratch: int | None = None
        if strategy == ExecutionContextAllocationStrategy.STATIC:
            _, self._scratch = self._driver.cuMemAlloc(engine.device_memory_size_v2)
        known = cache._kernels if cache is not None else set[str]()
        if engine._digest not in known:
            self._driver.compilations += 1
            known.add(engine._digest)
        self._driver.executions.add(self)

    def set_device_memory(self, memory: int, size: int) -> None:
        assert size >= self._engine.device_memory_size_v2
        self._driver.view(memory, size)
        self._scratch = memory

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return name in self._engine._tensors

    def is_stream_capturable(self, stream: int) -> bool:
        return self._driver.capturable

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine, addresses, scratch = self._engine, dict(self._addresses), self._scratch
        queue = self._driver.queue(stream_handle)
        if addresses.keys() != engine._tensors.keys():
            return engine._fail(f"addresses of {engine._tensors.keys() - addresses} missing")
        if scratch is None:
            return engine._fail("device memory was not set")
        if not self._ready and queue.recording is not None:
            return engine._fail("the first run cannot be recorded")
        self._ready = True
        recorded = None if queue.recording is None else self._addresses
        run = _Run(engine, addresses, scratch, id(self), recorded)
        queue.add(run.begin)
        queue.add(run.end)
        return True

    def __del__(self) -> None:
        if hasattr(self, "_driver"):
            queued = [work for queue in self._driver.streams.values() for work in queue.waiting]
            runs = [getattr(work, "__self__", None) for work in queued]
            if any(isinstance(run, _Run) and run.context == id(self) for run in runs):
                self._driver.misuse("IExecutionContext ends while it is at work")
        super().__del__()


class ICudaEngine(_Object):
    def __init__(self, runtime: "Runtime", session: Any, content: bytes) -> None:
        super().__init__(runtime.driver)
        self._runtime, self._session, self._logger = runtime, session, runtime._logger
        self._digest = hashlib.sha256(content).hexdigest()
        self._tensors = {
            value.name: (DTYPES[value.type[len("tensor(") : -1]], tuple(value.shape))
            for value in (*session.get_inputs(), *session.get_outputs())
        }

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    def get_tensor_name(self, index: int) -> str:
        return [*self._tensors][index]

    def get_tensor_dtype(self, name: str) -> DataType:
        dtype, _ = self._tensors[name]
        return DataType(dtype)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        _, shape = self._tensors[name]
        return shape

    @property
    def device_memory_size_v2(self) -> int:
        return 256 * len(self._tensors)

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig(self)

    def create_execution_context(
        self, how: IRuntimeConfig | int = ExecutionContextAllocationStrategy.STATIC
    ) -> IExecutionContext:
        if isinstance(how, IRuntimeConfig):
            return IExecutionContext(self, how._strategy, how._cache)
        return IExecutionContext(self, how, None)

    def _fail(self, reason: str) -> bool:
        self._logger.log(
            1, f"IExecutionContext::enqueueV3: Error Code 3: API Usage Error ({reason})"
        )
        return False


class _Run:
    """Takes time: what it reads, writes and works in must stay untouched until it ends."""

    def __init__(
        self,
        engine: ICudaEngine,
        addresses: dict[str, int],
        scratch: int,
        context: int,
        recorded: dict[str, int] | None,
    ) -> None:
        """`recorded` are the addresses of the context of a graph, which may change later."""
        self._engine, self._addresses, self._scratch = engine, addresses, scratch
        self.context, self._recorded = context, recorded

    def begin(self) -> None:
        now = self._addresses if self._recorded is None else self._recorded
        assert now == self._addresses, "a graph's context has other addresses by now"
        self._mark = np.frombuffer(np.random.default_rng().bytes(256), np.uint8)
        self._inputs = {name: tensor.copy() for name, tensor in self._tensors("inputs").items()}
        for tensor in self._tensors("outputs").values():
            tensor.view(np.uint8).fill(0xFF)  # an engine may write outputs in any order
        self._memory()[:] = self._mark

    def end(self) -> None:
        for name, tensor in self._tensors("inputs").items():
            same = np.array_equal(tensor.view(np.uint8), self._inputs[name].view(np.uint8))
            assert same, f"{name} was overwritten while it was read"
        assert np.array_equal(self._memory(), self._mark), "two engines work in one scratch memory"
        outputs = self._tensors("outputs")
        answers = self._engine._session.run(list(outputs), self._inputs)
        for tensor, answer in zip(outputs.values(), answers, strict=True):
            assert (tensor.view(np.uint8) == 0xFF).all(), "an output was overwritten"
            tensor[...] = answer

    def _memory(self) -> np.ndarray:
        return self._engine._driver.view(self._scratch, len(self._mark))

    def _tensors(self, kind: str) -> dict[str, np.ndarray]:
        engine, found = self._engine, {}
        for value in getattr(engine._session, f"get_{kind}")():
            dtype, shape = engine._tensors[value.name]
            nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            memory = engine._driver.view(self._addresses[value.name], nbytes)
            found[value.name] = memory.view(dtype).reshape(shape)
        return found


class Runtime(_Object):
    engine_host_code_allowed = False
    driver: Driver

    def __init__(self, logger: ILogger) -> None:
        if not self.driver.starts:
            logger.log(1, "createInferRuntime: Error Code 6: API Usage Error (CUDA driver: 35)")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        super().__init__(self.driver)
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
        return ICudaEngine(self, session, serialized_engine)


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
    module.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy
    module.ProfilingVerbosity = ProfilingVerbosity
    module.IExecutionContext = IExecutionContext if name == "tensorrt_rtx" else object
    if name == "tensorrt_rtx":
        module.IRuntimeCache = IRuntimeCache
    return module
