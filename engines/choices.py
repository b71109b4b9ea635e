"""Enums of `mrcfa build`'s options: flavour, use of the plugin."""

from enum import Enum


class FlavourChoice(str, Enum):
    AUTO = "auto"
    TENSORRT = "tensorrt"
    RTX = "rtx"


class PluginUse(str, Enum):
    """When `SelectTokens` becomes a plugin."""

    AUTO = "auto"
    """Where the model keeps more tokens than TensorRT's TopK takes."""
    NEVER = "never"
    ALWAYS = "always"
