"""Check of an engine before a backend uses it: it must load and have the manifest's tensors."""

from time import perf_counter
from types import ModuleType

from mrcfa.backends.cuda import Cuda
from mrcfa.backends.plans import TypesAndShapes, differences, tensors_of
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, load_plugin, logger
from mrcfa.bundle.manifest import Engine
from mrcfa.errors import member
from mrcfa.selftest.line import Fault, Found, NotRun


def examined(bundle: Bundle, engine: Engine) -> Found:
    """Deserialise both plans and compare their tensors with the manifest's."""
    cuda = Cuda()
    flavour, gpu = member(Flavour, engine.flavour, "flavour"), cuda.gpu
    if gpu.sm not in engine.compute_capabilities:
        raise NotRun(
            f"the engine was built for other GPUs than {gpu.name} (sm_{gpu.sm}); "
            f"build one for it with: mrcfa build {bundle.path}"
        )
    trt = flavour.load()
    anew = f"build it again with: mrcfa build {bundle.path}"
    if engine.plugin:
        load_plugin(trt)
    variant = bundle.manifest.variants[engine.variant]
    seconds = {}
    for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder)):
        content = bundle.read(name)
        began = perf_counter()
        with captured_log(trt) as log, cuda.current():
            tensors = _tensors(trt, content, engine.version_compatible)
        seconds[part] = perf_counter() - began
        if tensors is None:
            raise Fault(
                f"{flavour.product} {trt.__version__} does not load the {part}, built with "
                f"{engine.tensorrt}: {first_error(log)}",
                anew,
            )
        graph = variant.graphs[part]
        wrong = differences(tensors, (*graph.inputs, *graph.outputs))
        if wrong:
            raise Fault(f"the {part} has other tensors than its graph: {wrong}", anew)
    times = ", ".join(f"{part} in {duration:.2f} s" for part, duration in seconds.items())
    return Found(f"loads ({times}) and has the manifest's tensors", {"seconds": seconds})


def _tensors(trt: ModuleType, content: bytes, version_compatible: bool) -> TypesAndShapes | None:
    """Tensors of a plan; None if it does not load.

    TensorRT's objects are destroyed here, while their CUDA context is current.
    """
    runtime = trt.Runtime(logger(trt))
    runtime.engine_host_code_allowed = version_compatible
    engine = runtime.deserialize_cuda_engine(content)
    return None if engine is None else tensors_of(engine)
