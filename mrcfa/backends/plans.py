"""Loaded TensorRT engines: their two plans, and the execution contexts that run them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda import CudaStream, DeviceArray
from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.backends.fitting import Library, Machine, dotted
from mrcfa.backends.releases import none_recorded
from mrcfa.backends.runtime_cache import RuntimeCache
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, load_plugin, logger
from mrcfa.bundle.manifest import Engine, TensorSpec
from mrcfa.errors import MrcfaError, RuntimeFailed, member

Tensors = Mapping[str, DeviceArray]
TypesAndShapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""The type and the shape of each tensor, by name."""
_DTYPES = {"FLOAT": "float32", "HALF": "float16", "INT32": "int32", "UINT8": "uint8"}
"""TensorRT's names -> the manifest's. `trt.nptype` breaks with new numpys."""


def machine_of(cuda: Cuda) -> Machine:
    """The facts that decide which engines run on this GPU."""

    def library(flavour: Flavour) -> Library:
        return Library(flavour.load().__version__, flavour.wheel_cuda)

    return Machine(cuda.gpu, cuda.version, library)


class Plans:
    """The encoder and the decoder of an engine, deserialised. Any number of lanes may execute them.

    Whatever this machine refuses to load is an Unfit, so that another engine can be tried.
    """

    def __init__(
        self, cuda: Cuda, bundle: Bundle, engine: Engine, plugin_library: Path | None
    ) -> None:
        gpu = cuda.gpu
        self.engine = engine
        self.variant = bundle.manifest.variants[engine.variant]
        self._cuda, self._trt = cuda, member(Flavour, engine.flavour, "flavour").load()
        runtime = self._runtime()
        runtime.thing.engine_host_code_allowed = engine.version_compatible
        if engine.plugin:
            try:
                load_plugin(self._trt, plugin_library)
            except MrcfaError as error:
                raise Unfit(f"the engine {engine.name} needs a plugin: {error}") from None
        self._engines: dict[str, Held[Any]] = {}
        for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder)):
            plan = bundle.read(name)
            with none_recorded(), captured_log(self._trt) as log:
                loaded = Held(cuda, runtime.thing.deserialize_cuda_engine(plan), runtime)
            if loaded.thing is None:
                raise Unfit(
                    f"{self._trt.__name__} {self._trt.__version__} on {gpu.name} cannot load "
                    f"{bundle.path / name}, built with {engine.tensorrt}: {first_error(log)}"
                )
            graph = self.variant.graphs[part]
            if wrong := differences(tensors_of(loaded.thing), (*graph.inputs, *graph.outputs)):
                raise Unfit(
                    f"{bundle.path / name} has other tensors than the manifest says ({wrong}); "
                    f"build it again with: mrcfa build {bundle.path}"
                )
            self._engines[part] = loaded
        self._cache: RuntimeCache | None = None
        if hasattr(self._trt, "IRuntimeCache"):
            files = (bundle.manifest.files[name] for name in (engine.encoder, engine.decoder))
            plans = [file.sha256 for file in files]
            self._cache = RuntimeCache(cuda, self._trt, self._engines["encoder"], gpu, plans)

    def scratch(self, *parts: str) -> DeviceArray:
        """New scratch memory that these plans may share if they run one after the other."""
        sizes = [int(self._engines[part].thing.device_memory_size_v2) for part in parts]
        return DeviceArray(self._cuda, (max(*sizes, 1),), "uint8")

    def context(self, part: str, scratch: DeviceArray) -> "Context":
        """A new execution context. RTX then compiles, for seconds, what is not in the cache.

        The first context of a part fills the cache in memory, so later ones compile nothing.
        """
        return Context(self._cuda, self._trt, self._engines[part], self._cache, scratch)

    def save_cache(self) -> None:
        if self._cache is not None:
            self._cache.save()

    def _runtime(self) -> Held[Any]:
        trt = self._trt
        with none_recorded(), captured_log(trt) as log:
            try:
                runtime = Held(self._cuda, trt.Runtime(logger(trt)))
            except (TypeError, RuntimeError):  # pybind11's words for a null pointer
                runtime = Held(self._cuda, None)
        if runtime.thing is None:
            raise Unfit(
                f"{trt.__name__} {trt.__version__} does not start: {first_error(log)}; NVIDIA's "
                f"driver supports CUDA up to {dotted(self._cuda.version)}, which may be too old"
            )
        return runtime


class Context:
    """An execution context of one plan. Its failures are errors with TensorRT's own words.

    Its scratch memory is the caller's, who may share it among contexts that never run at once.
    """

    def __init__(
        self,
        cuda: Cuda,
        trt: ModuleType,
        engine: Held[Any],
        cache: RuntimeCache | None,
        scratch: DeviceArray,
    ) -> None:
        self._trt = trt
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        with none_recorded(), captured_log(trt) as log:
            if cache is None:
                self._context = Held(
                    cuda, engine.thing.create_execution_context(strategy), engine, scratch
                )
            else:
                config = Held(cuda, engine.thing.create_runtime_config(), engine, cache)
                config.thing.set_execution_context_allocation_strategy(strategy)
                cache.attach(config.thing)
                self._context = Held(
                    cuda, engine.thing.create_execution_context(config.thing), config, scratch
                )
        if self._context.thing is None:
            raise Unfit(f"TensorRT cannot prepare the engine: {first_error(log)}")
        # Engines carry the names of their layers; a range in NVTX for each would cost every frame.
        self._context.thing.nvtx_verbosity = trt.ProfilingVerbosity.NONE
        self.use(scratch)

    def use(self, scratch: DeviceArray) -> None:
        """Use this scratch memory from now on. No work may be under way."""
        self._scratch = scratch
        self._context.thing.set_device_memory(scratch.ptr, scratch.nbytes)

    def enqueue(self, tensors: Tensors, stream: CudaStream) -> None:
        with captured_log(self._trt) as log:
            done = all(
                self._context.thing.set_tensor_address(name, tensor.ptr)
                for name, tensor in tensors.items()
            ) and self._context.thing.execute_async_v3(stream.address)
        if not done:
            raise RuntimeFailed(f"TensorRT cannot run the engine: {first_error(log)}")

    def profile(self, profiler: Any) -> None:
        """Report the time of each layer of later runs to this `IProfiler`."""
        self._context.thing.profiler = profiler

    def recordable(self, stream: CudaStream) -> bool:
        """True if a CUDA graph may be recorded. Classic TensorRT cannot be asked, unlike RTX."""
        if not hasattr(self._trt.IExecutionContext, "is_stream_capturable"):
            return True
        return bool(self._context.thing.is_stream_capturable(stream.address))


def tensors_of(engine: Any) -> TypesAndShapes:
    """The tensors at both ends of a deserialised plan."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    dtypes = {name: engine.get_tensor_dtype(name).name for name in names}
    return {
        name: (_DTYPES.get(dtype, dtype), tuple(engine.get_tensor_shape(name)))
        for name, dtype in dtypes.items()
    }


def differences(found: TypesAndShapes, wanted: Iterable[TensorSpec]) -> str:
    """Differences between the tensors of a plan and the manifest, as text; empty if none."""
    facts = {spec.name: (spec.dtype, spec.shape) for spec in wanted}
    return ", ".join(
        f"{name} is {_shown(found.get(name))} instead of {_shown(facts.get(name))}"
        for name in dict.fromkeys([*facts, *found])
        if found.get(name) != facts.get(name)
    )


def _shown(facts: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if facts is None else f"{facts[0]} {list(facts[1])}"
