"""The variants that an export can write: one row each.

A row names an *arrangement*, which lays the graphs out for a device: `ort_cpu` for ONNX Runtime on
CPUs, `plain` for GPUs and every other runtime. The variant decides what a graph looks like, never a
dtype.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from mrcfa.bundle.manifest import Device, Limits
from mrcfa.bundle.precisions import EIGHT_BITS, PREFERRED, precision_named
from mrcfa.console.arguments import parse_names
from mrcfa.data.datasets import dataset_named
from mrcfa.errors import InvalidValue, named
from mrcfa.export.arrangement import Arrangement
from mrcfa.export.grouping import DecoderMemory, Grouping
from mrcfa.export.ort_cpu.arrangement import ORT_CPU
from mrcfa.export.plain import PLAIN
from mrcfa.export.precision import in_fp16, in_fp32
from mrcfa.export.quantization.products import in_products
from mrcfa.model.config import Config, Method

FP32_LIMITS = Limits(
    largest_error=5e-5, mean_error=5e-6, agreement=0.999, mean_iou=0.99, worst_iou=0.97
)
FP16_LIMITS = Limits(
    largest_error=0.25, mean_error=1e-3, agreement=0.99, mean_iou=0.94, worst_iou=0.8
)
"""NVIDIA accepts its own FP16 SegFormer at 0.99 agreement and 0.94 mIoU. FP16 may keep another one
of two tokens of almost equal importance, which moves a few logits far and masks hardly at all: the
limit of the largest error finds broken graphs only. In a small frame such a swap moves all logits
by a hundred times the rounding error. A frame whose choice is closer than the precision resolves is
therefore left out of the mean error."""


@dataclass(frozen=True)
class Variant:
    name: str
    precision: str
    device: Device
    arrangement: Arrangement
    rounded: Callable[[nn.Module], nn.Module]
    """Rounds a graph's float64 parameters."""
    limits: Limits

    @property
    def dtype(self) -> torch.dtype:
        """The type of the tensors between both graphs."""
        dtype: torch.dtype = getattr(torch, precision_named(self.precision).dtype)
        return dtype

    @property
    def resolution(self) -> float:
        """The relative gap between the importance of two tokens that survives a few roundings."""
        return 4 * torch.finfo(self.dtype).eps

    def file(self, part: str) -> str:
        """`decoder.onnx` is the FP32 graph for CPUs; the others carry their variant's name."""
        return f"{part}.onnx" if self.name == "fp32" else f"{part}.{self.name}.onnx"

    def runs(self, streams: int) -> tuple[int, int]:
        """How many times a graph runs for all streams, and the number of streams in each run."""
        return (streams, 1) if self.arrangement.one_stream else (1, streams)

    def memory(self, config: Config, streams: int) -> DecoderMemory:
        """The memory that MRCFA's decoder takes in this variant."""
        _, batch = self.runs(streams)
        return self.arrangement.memory(config, self.dtype.itemsize, batch)

    def grouping(self, config: Config, streams: int, budget: int | None = None) -> Grouping | None:
        """Groups of tokens within a budget of bytes, or the usual one; None for baselines."""
        if config.method is not Method.MRCFA:
            return None
        memory = self.memory(config, streams)
        if budget is None:
            at_preset = replace(config, size=dataset_named(config.dataset).preset.size)
            budget = memory.usual_budget(self.memory(at_preset, streams))
        return memory.grouping(budget)


_TABLE = (
    Variant("fp32", "fp32", Device.CPU, ORT_CPU, in_fp32, FP32_LIMITS),
    Variant("fp16", "fp16", Device.GPU, PLAIN, in_fp16, FP16_LIMITS),
    Variant("fp32-gpu", "fp32", Device.GPU, PLAIN, in_fp32, FP32_LIMITS),
    *(Variant(name, name, Device.GPU, PLAIN, in_products, FP16_LIMITS) for name in EIGHT_BITS),
)
VARIANTS = {variant.name: variant for variant in _TABLE}
"""The graphs of 8-bit rows are traced in FP16; `mrcfa quantize` inserts the 8 bits and measures the
limits."""
DEFAULT = tuple(PREFERRED.values())


def variants_named(text: str) -> list[Variant]:
    """`fp32,fp16` -> their rows."""
    names = dict.fromkeys(parse_names(text))
    for name in EIGHT_BITS:
        if name in names:
            raise InvalidValue(
                f"{name} is calibrated on data: export without it, then: "
                f"mrcfa quantize BUNDLE --precision {name} --data DATA"
            )
    unknown = [name for name in names if name not in VARIANTS]
    if unknown or not names:
        raise InvalidValue(
            f"unknown variant {named(unknown) or 'none'}; choose from {named(VARIANTS)}"
        )
    return [VARIANTS[name] for name in names]
