"""Time of compiled plans on the GPU that they are for, run as streams run them."""

from collections.abc import Sequence
from time import perf_counter
from types import ModuleType

import numpy as np

from mrcfa.backends.cuda import CudaStream, DeviceArray
from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.backends.launch import GraphUse, Launch
from mrcfa.backends.plans import Context
from mrcfa.bundle.flavours import captured_log, first_error, logger
from mrcfa.bundle.manifest import Graph
from mrcfa.errors import RuntimeFailed
from mrcfa.machine import hardware

LOAD_S = 1.0
"""Length of the load before anything is measured: a GPU that waits lowers its clocks."""
ROUNDS, RUNS = 15, 10
"""Measured rounds, in each of which each plan runs this often, back to back."""


def gpu_for(sms: Sequence[int]) -> int | None:
    """The number of a GPU of this machine with one of these compute capabilities."""
    return next((number for number, gpu in enumerate(hardware.gpus()) if gpu.sm in sms), None)


def seconds_of(
    trt: ModuleType, device: int, plans: Sequence[bytes], graph: Graph, version_compatible: bool
) -> list[float]:
    """Median seconds of one run of each plan. Rounds alternate, so a slow moment affects all.

    Inputs are zeros, on which no kernel's time depends.
    """
    cuda = Cuda(device)
    with cuda.failures_explained(), cuda.current():
        stream = CudaStream(cuda)
        tensors = {
            spec.name: DeviceArray(cuda, spec.shape, spec.dtype)
            for spec in (*graph.inputs, *graph.outputs)
        }
        for tensor in tensors.values():
            stream.zero(tensor)
        launches = [
            Launch(stream, context, tensors, GraphUse(True))
            for context in (_context(trt, cuda, plan, version_compatible) for plan in plans)
        ]
        loaded = perf_counter() + LOAD_S
        while perf_counter() < loaded:
            for launch in launches:
                _seconds(stream, launch)
        rounds = [[_seconds(stream, launch) for launch in launches] for _ in range(ROUNDS)]
    return [float(seconds) for seconds in np.median(rounds, axis=0)]


def _seconds(stream: CudaStream, launch: Launch) -> float:
    """Seconds of one of `RUNS` runs, between two events on the GPU."""
    began = stream.mark(timed=True)
    for _ in range(RUNS):
        launch()
    ended = stream.mark(timed=True)
    ended.synchronize()
    return ended.seconds_since(began) / RUNS


def _context(trt: ModuleType, cuda: Cuda, plan: bytes, version_compatible: bool) -> Context:
    with captured_log(trt) as log:
        runtime = Held(cuda, trt.Runtime(logger(trt)))
        runtime.thing.engine_host_code_allowed = version_compatible
        engine = Held(cuda, runtime.thing.deserialize_cuda_engine(plan), runtime)
    if engine.thing is None:
        raise RuntimeFailed(f"the plan does not load: {first_error(log)}")
    scratch = DeviceArray(cuda, (max(int(engine.thing.device_memory_size_v2), 1),), "uint8")
    return Context(cuda, trt, engine, None, scratch)
