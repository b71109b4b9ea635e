"""How much memory an export takes, told before it starts."""

from mrcfa.bundle.manifest import Device
from mrcfa.errors import Unsupported
from mrcfa.export.exporter import ExportOptions
from mrcfa.export.variants import Variant
from mrcfa.machine import hardware
from mrcfa.model.config import Config

LIBRARIES = 1_000_000_000
"""Of torch, ONNX Runtime and what they keep."""
PER_PIXEL = 1_200
"""Of the network's input, and for each stream: the model, or an encoder that is proven. As seen of
b1 at 1088×1920, whose export took 3.3 GB."""
PER_NUMBER = {Device.CPU: 9, Device.GPU: 21}
"""Bytes for each number that a decoder is reckoned to hold, as ONNX Runtime proves it: it fuses
little, and computes FP16 in FP32. As seen of Cityscapes' b1 at 1024×2048."""

WORTH_TELLING = 3_000_000_000
"""Less is what most machines have."""


def needed_bytes(config: Config, options: ExportOptions) -> int:
    """About what the process holds at its peak."""
    pixels = config.size[0] * config.size[1] * options.streams
    decoders = [_proven(variant, config, options) for variant in options.variants]
    return LIBRARIES + max(PER_PIXEL * pixels, *decoders)


def _proven(variant: Variant, config: Config, options: ExportOptions) -> int:
    """What the proof of a variant's decoder holds; 0 where its tokens do not come in groups."""
    memory = variant.memory(config, options.streams)
    groups = variant.groups(config, options.streams, options.activation_memory)
    if memory is None or groups is None:
        return 0
    return PER_NUMBER[variant.device] * memory.of(groups) // memory.itemsize


def check_memory(config: Config, options: ExportOptions) -> int:
    """What is needed, or an error if this machine has less."""
    needed, free = needed_bytes(config, options), hardware.available_memory()
    if free is not None and free < needed:
        fewer = "fewer --streams, " if options.streams > 1 else ""
        raise Unsupported(
            f"this export takes about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are "
            f"free; choose {fewer}a smaller --size, or export on a larger machine"
        )
    return needed
