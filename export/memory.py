"""How much memory an export takes, told before it starts."""

from export.exporter import ExportOptions
from mrcfa import machine
from mrcfa.errors import MrcfaError
from mrcfa.model.config import Config

LIBRARIES = 1_000_000_000
"""Of torch, ONNX Runtime and what they keep."""
PER_PIXEL = 2_800
"""Of the network's input, and for each stream: the model, or a pair of graphs that is proven. As
seen of b1 from 480×864 to 1088×1920, the widest of backbones."""

WORTH_TELLING = 3_000_000_000
"""Less is what most machines have."""


def needed_bytes(config: Config, options: ExportOptions) -> int:
    """About what the process holds at its peak."""
    return LIBRARIES + PER_PIXEL * config.size[0] * config.size[1] * options.streams


def check_memory(config: Config, options: ExportOptions) -> int:
    """What is needed, or an error if this machine has less."""
    needed, free = needed_bytes(config, options), machine.available_memory()
    if free is not None and free < needed:
        fewer = "fewer --streams, " if options.streams > 1 else ""
        raise MrcfaError(
            f"this export takes about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are "
            f"free; choose {fewer}a smaller --size, or export on a larger machine"
        )
    return needed
