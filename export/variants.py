"""The variants that an export can write: one row each. A new precision is a row here.

An *arrangement* is how the graphs are laid out for a device; `plain` is for GPUs and every runtime
but ONNX Runtime on CPUs, which has `ort_cpu`. What a graph looks like is decided by its variant,
never by a dtype.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from mrcfa.bundle.manifest import Device, Limits
from mrcfa.bundle.precisions import EIGHT_BITS, PREFERRED, precision_named
from mrcfa.console.arguments import parse_names
from mrcfa.errors import InvalidValue, named
from mrcfa.export.arrangement import Arrangement
from mrcfa.export.baselines import arrangement_for
from mrcfa.export.groups import DecoderMemory, Groups
from mrcfa.export.ort_cpu.arrangement import ORT_CPU
from mrcfa.export.plain import PLAIN
from mrcfa.export.precision import in_fp16, in_fp32
from mrcfa.export.quantization.products import in_products
from mrcfa.model.config import Config

FP32_LIMITS = Limits(
    largest_error=5e-5, mean_error=5e-6, agreement=0.999, mean_iou=0.99, worst_iou=0.97
)
FP16_LIMITS = Limits(
    largest_error=0.25, mean_error=1e-3, agreement=0.99, mean_iou=0.94, worst_iou=0.8
)
"""NVIDIA gates its own FP16 SegFormer at 0.99 agreement and 0.94 mIoU. A token at the edge of STM's
choice may swap with its neighbour, which moves single logits far and the masks hardly: the largest
error only catches what is broken. In a small frame such a swap moves all logits of the frame by a
hundred times the rounding error, so where the reference's own choice is closer than the precision
resolves, the mean error is judged without that frame."""


@dataclass(frozen=True)
class Variant:
    name: str
    precision: str
    device: Device
    arrangement: Arrangement
    rounded: Callable[[nn.Module], nn.Module]
    """What becomes of a graph's float64 parameters."""
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

    def arranged(self, config: Config) -> Arrangement:
        """The arrangement for a model's method."""
        return arrangement_for(config.method, self.arrangement)

    def in_turn(self, streams: int) -> tuple[int, int]:
        """How often a graph is run for all streams, and for how many of them at once."""
        return (streams, 1) if self.arrangement.streams_in_turn else (1, streams)

    def memory(self, config: Config, streams: int) -> DecoderMemory | None:
        """What its decoder holds; None where its tokens cannot come in groups."""
        _, batch = self.in_turn(streams)
        return self.arranged(config).memory(config, self.dtype.itemsize, batch)

    def groups(self, config: Config, streams: int, budget: int | None) -> Groups | None:
        """Of the decoder's tokens; None where they cannot come in groups."""
        _, batch = self.in_turn(streams)
        return self.arranged(config).groups(config, self.dtype.itemsize, batch, budget)


_TABLE = (
    Variant("fp32", "fp32", Device.CPU, ORT_CPU, in_fp32, FP32_LIMITS),
    Variant("fp16", "fp16", Device.GPU, PLAIN, in_fp16, FP16_LIMITS),
    Variant("fp32-gpu", "fp32", Device.GPU, PLAIN, in_fp32, FP32_LIMITS),
    *(Variant(name, name, Device.GPU, PLAIN, in_products, FP16_LIMITS) for name in EIGHT_BITS),
)
VARIANTS = {variant.name: variant for variant in _TABLE}
"""Graphs of 8-bit rows are FP16 as they are traced: `mrcfa quantize` puts the 8 bits in, and
measures the limits."""
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
