"""Check of an engine before a backend uses it: it must load and have the manifest's tensors."""

from collections.abc import Mapping
from time import perf_counter
from types import ModuleType

from mrcfa.backends.cuda import Cuda
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, complaint, heard, load_plugin, logger
from mrcfa.bundle.manifest import Engine, TensorSpec
from mrcfa.errors import member
from mrcfa.selftest.line import Fault, Found, NotRun

_DTYPES = {"FLOAT": "float32", "HALF": "float16", "INT32": "int32", "UINT8": "uint8"}
"""TensorRT's type names -> the manifest's; `trt.nptype` fails with recent versions of NumPy."""


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
        with heard(trt) as said, cuda.current():
            tensors = _tensors(trt, content, engine.version_compatible)
        seconds[part] = perf_counter() - began
        if tensors is None:
            raise Fault(
                f"{flavour.product} {trt.__version__} does not load the {part}, built with "
                f"{engine.tensorrt}: {complaint(said)}",
                anew,
            )
        graph = variant.graphs[part]
        wrong = _differences(tensors, (*graph.inputs, *graph.outputs))
        if wrong:
            raise Fault(f"the {part} has other tensors than its graph: {wrong}", anew)
    times = ", ".join(f"{part} in {duration:.2f} s" for part, duration in seconds.items())
    return Found(f"loads ({times}) and has the manifest's tensors", {"seconds": seconds})


Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name -> type and shape."""


def _tensors(trt: ModuleType, content: bytes, version_compatible: bool) -> Tensors | None:
    """Tensors of a plan; None if it does not load.

    TensorRT's objects are destroyed here, while their CUDA context is current.
    """
    runtime = trt.Runtime(logger(trt))
    runtime.engine_host_code_allowed = version_compatible
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        return None
    found = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        dtype = engine.get_tensor_dtype(name).name
        found[name] = (_DTYPES.get(dtype, dtype), tuple(engine.get_tensor_shape(name)))
    return found


def _differences(found: Tensors, wanted: tuple[TensorSpec, ...]) -> str:
    facts = {spec.name: (spec.dtype, spec.shape) for spec in wanted}
    return ", ".join(
        f"{name} is {_described(found.get(name))} instead of {_described(facts.get(name))}"
        for name in dict.fromkeys([*facts, *found])
        if found.get(name) != facts.get(name)
    )


def _described(facts: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if facts is None else f"{facts[0]} {list(facts[1])}"
