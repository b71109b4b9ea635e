"""Time of each layer of an engine, measured by TensorRT's profiler.

A profiler slows its execution context down, so it never runs in the contexts that are measured.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda import Cuda, CudaStream, DeviceArray
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, load_plugin, logger
from mrcfa.bundle.manifest import Engine, Graph
from mrcfa.errors import RuntimeFailed, member

SLOWEST = 10
RUNS = 20
"""Measured runs of each graph, after one warm-up run."""


@dataclass(frozen=True)
class LayerTime:
    graph: str
    layer: str
    milliseconds: float
    """Mean over `RUNS`."""


def slowest_layers(bundle: Bundle, engine: Engine) -> list[LayerTime]:
    """The `SLOWEST` layers of both graphs. Inputs are zeros: no layer's time depends on values."""
    trt, cuda = member(Flavour, engine.flavour, "flavour").load(), Cuda()
    if engine.plugin:
        load_plugin(trt)
    graphs = bundle.manifest.variants[engine.variant].graphs
    found = []
    for part, name in (("encoder", engine.encoder), ("decoder", engine.decoder)):
        content = bundle.read(name)
        with captured_log(trt) as log, cuda.current():
            times = _times(trt, cuda, content, graphs[part], engine.version_compatible)
        if times is None:
            raise RuntimeFailed(f"layers of the {part} were not timed: {first_error(log)}")
        found += [LayerTime(part, layer, total / RUNS) for layer, total in times.items()]
    return sorted(found, key=lambda layer: -layer.milliseconds)[:SLOWEST]


def _times(
    trt: ModuleType, cuda: Cuda, content: bytes, graph: Graph, version_compatible: bool
) -> dict[str, float] | None:
    """Layer -> ms, summed over runs; None if the plan does not run.

    TensorRT's objects are destroyed here, while their CUDA context is current.
    """
    runtime = trt.Runtime(logger(trt))
    runtime.engine_host_code_allowed = version_compatible
    engine = runtime.deserialize_cuda_engine(content)
    context = None if engine is None else engine.create_execution_context()
    if context is None:
        return None
    stream, times = CudaStream(cuda), dict[str, float]()
    tensors = [
        (spec.name, DeviceArray(cuda, spec.shape, spec.dtype))
        for spec in (*graph.inputs, *graph.outputs)
    ]
    for name, tensor in tensors:
        stream.zero(tensor)
        context.set_tensor_address(name, tensor.ptr)
    for run in range(RUNS + 1):
        if run == 1:
            context.profiler = _profiler(trt, times)
        if not context.execute_async_v3(stream.address):
            return None
        stream.synchronize()
    return times


def _profiler(trt: ModuleType, times: dict[str, float]) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc, name-defined]  # a base of run time
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times[layer_name] = times.get(layer_name, 0.0) + ms

    return Profiler()
