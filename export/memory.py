"""An estimate of the memory that an export takes, for a warning or an error before it starts."""

from mrcfa.bundle.manifest import Device
from mrcfa.errors import Unsupported
from mrcfa.export.exporter import ExportOptions
from mrcfa.export.variants import Variant
from mrcfa.machine import hardware
from mrcfa.model.config import Config

LIBRARIES = 1_000_000_000
"""Bytes that torch, ONNX Runtime and their caches hold."""
PER_PIXEL = 1_200
"""Bytes for a pixel of the network's input and each stream, for the model or for the proof of an
encoder. Measured with b1 at 1088×1920, whose export took 3.3 GB."""
PER_NUMBER = {Device.CPU: 9, Device.GPU: 21}
"""Bytes that the proof in ONNX Runtime takes for each number a decoder holds: ONNX Runtime fuses
little and computes FP16 in FP32. Measured with Cityscapes' b1 at 1024×2048."""

WORTH_A_WARNING = 3_000_000_000
"""Most machines have this many bytes."""


def needed_bytes(config: Config, options: ExportOptions) -> int:
    """An estimate of the process's peak."""
    pixels = config.size[0] * config.size[1] * options.streams
    decoders = [_proven(variant, config, options) for variant in options.variants]
    return LIBRARIES + max(PER_PIXEL * pixels, *decoders)


def _proven(variant: Variant, config: Config, options: ExportOptions) -> int:
    """The memory for the proof of a variant's decoder; a baseline's is small."""
    grouping = variant.grouping(config, options.streams, options.activation_memory)
    if grouping is None:
        return 0
    memory = variant.memory(config, options.streams)
    return PER_NUMBER[variant.device] * memory.total(grouping) // memory.itemsize


def check_memory(config: Config, options: ExportOptions) -> int:
    """The bytes needed, or an error if this machine has less."""
    needed, free = needed_bytes(config, options), hardware.available_memory()
    if free is not None and free < needed:
        fewer = "fewer --streams, " if options.streams > 1 else ""
        raise Unsupported(
            f"this export takes about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are "
            f"free; choose {fewer}a smaller --size, or export on a larger machine"
        )
    return needed
