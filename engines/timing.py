"""Time of compiled plans on the GPU that they are for, run as streams run them."""

from collections.abc import Sequence
from time import perf_counter
from types import ModuleType

import numpy as np

from mrcfa.backends.cuda import CudaStream
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.launch import Launch
from mrcfa.backends.lone_plan import LonePlan
from mrcfa.machine import hardware

LOAD_S = 1.0
"""Length of the load before anything is measured: a GPU that waits lowers its clocks."""
ROUNDS, RUNS = 15, 10
"""Measured rounds, in each of which each plan runs this often, back to back."""


def gpu_for(sms: Sequence[int]) -> int | None:
    """The number of a GPU of this machine with one of these compute capabilities."""
    return next((number for number, gpu in enumerate(hardware.gpus()) if gpu.sm in sms), None)


def seconds_of(
    trt: ModuleType, device: int, plans: Sequence[bytes], version_compatible: bool
) -> list[float]:
    """Median seconds of one run of each plan. Rounds alternate, so a slow moment affects all.

    Inputs are zeros, on which no kernel's time depends.
    """
    cuda = Cuda(device)
    with cuda.failures_explained(), cuda.current():
        stream = CudaStream(cuda)
        launches = [LonePlan(cuda, trt, plan, stream, version_compatible).launch for plan in plans]
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
