"""A bundle's engine, loaded: which one fits this machine, its two plans, and their contexts."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda import CudaStream, DeviceArray
from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.backends.runtime_cache import RuntimeCache
from mrcfa.bundle import Bundle, Unfit
from mrcfa.bundle.flavours import Flavour, complaint, heard, load_plugin, logger
from mrcfa.bundle.manifest import Engine
from mrcfa.errors import MrcfaError, RuntimeFailed, member, named

Tensors = Mapping[str, DeviceArray]


class Plans:
    """Encoder and decoder, deserialised; any number of lanes may execute them."""

    def __init__(
        self, cuda: Cuda, bundle: Bundle, engine: Engine, plugin_library: Path | None
    ) -> None:
        gpu = cuda.gpu
        self._cuda, self._trt = cuda, _module(engine, cuda, bundle.path)
        self.variant = bundle.manifest.variants[engine.variant]
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
            with heard(self._trt) as said:
                loaded = Held(cuda, runtime.thing.deserialize_cuda_engine(plan), runtime)
            if loaded.thing is None:
                raise Unfit(
                    f"{self._trt.__name__} {self._trt.__version__} on {gpu.name} cannot load "
                    f"{bundle.path / name}, built with {engine.tensorrt}: {complaint(said)}"
                )
            self._engines[part] = loaded
        self._cache: RuntimeCache | None = None
        if hasattr(self._trt, "IRuntimeCache"):
            files = (bundle.manifest.files[name] for name in (engine.encoder, engine.decoder))
            plans = [file.sha256 for file in files]
            self._cache = RuntimeCache(cuda, self._trt, self._engines["encoder"], gpu, plans)

    def scratch(self, *parts: str) -> DeviceArray:
        """New memory that serves these plans, if they run one after the other."""
        sizes = [int(self._engines[part].thing.device_memory_size_v2) for part in parts]
        return DeviceArray(self._cuda, (max(*sizes, 1),), "uint8")

    def context(self, part: str, scratch: DeviceArray) -> "Context":
        """With RTX this compiles, for seconds, what the cache does not have."""
        return Context(self._cuda, self._trt, self._engines[part], self._cache, scratch)

    def save_cache(self) -> None:
        if self._cache is not None:
            self._cache.save()

    def _runtime(self) -> Held[Any]:
        trt = self._trt
        with heard(trt) as said:
            try:
                runtime = Held(self._cuda, trt.Runtime(logger(trt)))
            except (TypeError, RuntimeError):  # pybind11's words for a null pointer
                runtime = Held(self._cuda, None)
        if runtime.thing is None:
            raise Unfit(
                f"{trt.__name__} {trt.__version__} does not start: {complaint(said)}; NVIDIA's "
                f"driver knows CUDA up to {_dotted(self._cuda.version)}, which may be too old"
            )
        return runtime


class Context:
    """One engine's execution context, whose failures are errors with TensorRT's own words.

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
        with heard(trt) as said:
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
            raise Unfit(f"TensorRT cannot prepare the engine: {complaint(said)}")
        # Engines carry the names of their layers; a range in NVTX for each would cost every frame.
        self._context.thing.nvtx_verbosity = trt.ProfilingVerbosity.NONE
        self.use(scratch)

    def use(self, scratch: DeviceArray) -> None:
        """Work in this memory from now on. Nothing may be under way."""
        self._scratch = scratch
        self._context.thing.set_device_memory(scratch.ptr, scratch.nbytes)

    def enqueue(self, tensors: Tensors, stream: CudaStream) -> None:
        with heard(self._trt) as said:
            done = all(
                self._context.thing.set_tensor_address(name, tensor.ptr)
                for name, tensor in tensors.items()
            ) and self._context.thing.execute_async_v3(stream.address)
        if not done:
            raise RuntimeFailed(f"TensorRT cannot run the engine: {complaint(said)}")

    def recordable(self, stream: CudaStream) -> bool:
        """Whether a CUDA graph may be recorded; TensorRT itself, unlike RTX, cannot be asked."""
        if not hasattr(self._trt.IExecutionContext, "is_stream_capturable"):
            return True
        return bool(self._context.thing.is_stream_capturable(stream.address))


def candidates(bundle: Bundle, which: str, precision: str | None) -> list[Engine]:
    """The engines that are meant: FP16 first, then the fewest GPUs it is for, then the newest.

    An engine for several architectures has the kernels that the oldest of them can run.
    """
    engines = [
        engine
        for engine in reversed(bundle.manifest.engines)
        if which in ("", engine.name, engine.flavour) and precision in (None, engine.precision)
    ]
    if not engines:
        wanted = " ".join(word for word in (which, precision) if word)
        has = named(engine.name for engine in bundle.manifest.engines) or "none"
        raise Unfit(
            f"{bundle.path} has no engine {wanted or 'yet'} (it has {has}); "
            f"build one with: mrcfa build {bundle.path}"
        )
    return sorted(
        engines, key=lambda each: (each.precision != "fp16", len(each.compute_capabilities))
    )


def _module(engine: Engine, cuda: Cuda, path: Path) -> ModuleType:
    """The TensorRT that built the engine; if it or the GPU is another, both sides are named."""
    flavour, gpu = member(Flavour, engine.flavour, "flavour"), cuda.gpu
    if gpu.sm not in engine.compute_capabilities:
        built = named(f"sm_{sm}" for sm in engine.compute_capabilities)
        raise Unfit(
            f"the engine {engine.name} was built for {built} and {gpu.name} is sm_{gpu.sm}; "
            f"build one for it with: mrcfa build {path} --sm {gpu.sm}"
        )
    try:
        trt = flavour.load()
    except MrcfaError as error:
        raise Unfit(str(error)) from None
    here, built = trt.__version__, engine.tensorrt
    compatible = engine.version_compatible and here.split(".")[0] == built.split(".")[0]
    if here != built and not compatible:
        raise Unfit(
            f"the engine {engine.name} was built with {flavour.product} {built} and this machine "
            f"has {here}; build it again with: mrcfa build {path}, or install {built}"
        )
    _check_driver(flavour, cuda)
    return trt


def _check_driver(flavour: Flavour, cuda: Cuda) -> None:
    wheel, driver = flavour.wheel_cuda, cuda.version
    if wheel is not None and driver[0] < wheel:
        package = flavour.module.replace("_", "-")
        raise Unfit(
            f"{package} is installed for CUDA {wheel} and NVIDIA's driver knows CUDA up to "
            f"{_dotted(driver)}; update the driver, or install {package}-cu{driver[0]} instead"
        )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
