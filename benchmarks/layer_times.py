"""Time of each layer of an engine, measured by TensorRT's profiler.

A profiler slows its execution context down, so it never runs in the contexts that are measured.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda import CudaStream, DeviceArray
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.plans import Plans
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Engine
from mrcfa.errors import member

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
    """The `SLOWEST` layers of both graphs, which run in contexts like those of streams.

    Inputs are zeros: no layer's time depends on values.
    """
    trt, cuda = member(Flavour, engine.flavour, "flavour").load(), Cuda()
    with cuda.failures_explained(), cuda.current():
        plans = Plans(cuda, bundle, engine, None)
        found = [
            LayerTime(part, layer, total / RUNS)
            for part in plans.variant.graphs
            for layer, total in _times(trt, cuda, plans, part).items()
        ]
    return sorted(found, key=lambda layer: -layer.milliseconds)[:SLOWEST]


def _times(trt: ModuleType, cuda: Cuda, plans: Plans, part: str) -> dict[str, float]:
    """Layer -> ms, summed over runs."""
    graph, times = plans.variant.graphs[part], dict[str, float]()
    context, stream = plans.context(part, plans.scratch(part)), CudaStream(cuda)
    tensors = {
        spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
        for spec in (*graph.inputs, *graph.outputs)
    }
    for tensor in tensors.values():
        stream.zero(tensor)
    for run in range(RUNS + 1):
        if run == 1:
            context.profile(_profiler(trt, times))
        context.enqueue(tensors, stream)
        stream.synchronize()
    return times


def _profiler(trt: ModuleType, times: dict[str, float]) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc, name-defined]  # a base of run time
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times[layer_name] = times.get(layer_name, 0.0) + ms

    return Profiler()
