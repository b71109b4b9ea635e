"""An engine on its own, before any backend uses it: does it load, with the tensors it should?"""

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
            f"it was built for other GPUs than {gpu.name} (sm_{gpu.sm}); "
            f"build one with: mrcfa build {bundle.path}"
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
    took = ", ".join(f"{part} in {each:.2f} s" for part, each in seconds.items())
    return Found(f"loads ({took}); its tensors are the manifest's", {"seconds": seconds})


def _tensors(trt: ModuleType, content: bytes, version_compatible: bool) -> TypesAndShapes | None:
    """The tensors of a plan; None if it does not load. TensorRT's objects end in here, in their
    CUDA context."""
    runtime = trt.Runtime(logger(trt))
    runtime.engine_host_code_allowed = version_compatible
    engine = runtime.deserialize_cuda_engine(content)
    return None if engine is None else tensors_of(engine)
