"""Roofline bounds on FPS from the costs of graphs and engines; never measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Cost, Device, Engine, Graph, Variant
from mrcfa.machine.gpu_models import GPU_MODELS, LAUNCH_S, GpuModel

PAPER_FPS = 40.1
"""FPS that the paper reports for MRCFA with MiT-B1 on a Quadro RTX 6000."""


@dataclass(frozen=True)
class Ceiling:
    """Upper bounds on the frames per second of one GPU with these graphs."""

    gpu: GpuModel
    fps: float
    """Bound if all intermediate results stay on the chip."""
    unfused_fps: float
    """Bound if every operator reads and writes memory: nothing is fused."""
    engine_fps: float | None
    """Bound if every kernel of the bundle's engine reads and writes memory; None without engine."""


def ceilings(bundle: Bundle) -> list[Ceiling]:
    """Bounds for every GPU in the table, whose peaks are FP16; empty without FP16 graphs."""
    variant = bounded_variant(bundle)
    if variant is None:
        return []
    return [_ceiling(variant, gpu, _engine_for(bundle, gpu)) for gpu in GPU_MODELS]


def bounded_variant(bundle: Bundle) -> Variant | None:
    """The variant that bounds are computed for: FP16, because the GPUs' peaks are FP16 peaks."""
    name = bundle.find_variant(Device.GPU, "fp16")
    return None if name is None else bundle.manifest.variants[name]


def totals(costs: Sequence[Cost]) -> Cost:
    return Cost(
        "both",
        "total",
        sum(cost.multiply_adds for cost in costs),
        sum(cost.bytes_moved for cost in costs),
    )


def intensity(cost: Cost) -> float:
    """Floating-point operations per byte moved."""
    return 2 * cost.multiply_adds / max(cost.bytes_moved, 1)


def _engine_for(bundle: Bundle, gpu: GpuModel) -> Engine | None:
    fit = (
        engine
        for engine in bundle.manifest.engines
        if gpu.sm in engine.compute_capabilities and engine.precision == "fp16" and engine.costs
    )
    return min(fit, key=lambda engine: len(engine.compute_capabilities), default=None)


def _ceiling(variant: Variant, gpu: GpuModel, engine: Engine | None) -> Ceiling:
    unfused = sum(gpu.seconds(cost.multiply_adds, cost.bytes_moved) for cost in variant.cost)
    fused = sum(
        gpu.seconds(
            sum(cost.multiply_adds for cost in variant.cost if cost.graph == part),
            _compulsory_bytes(graph) / variant.streams,
        )
        for part, graph in variant.graphs.items()
    )
    kernels = None if engine is None else _kernel_seconds(variant, gpu, engine)
    return Ceiling(gpu, 1 / fused, 1 / unfused, None if kernels is None else 1 / kernels)


def _kernel_seconds(variant: Variant, gpu: GpuModel, engine: Engine) -> float:
    """Seconds of both plans: the longer of memory traffic and arithmetic, plus the launches."""
    return sum(
        LAUNCH_S * cost.kernels / variant.streams
        + gpu.seconds(
            sum(stage.multiply_adds for stage in variant.cost if stage.graph == part),
            cost.bytes_written + cost.bytes_read,
        )
        for part, cost in engine.costs.items()
    )


def _compulsory_bytes(graph: Graph) -> int:
    """Bytes of weights, inputs and outputs: they pass through memory even if all is fused."""
    tensors = sum(
        math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
        for spec in (*graph.inputs, *graph.outputs)
    )
    return tensors + 2 * graph.parameters
