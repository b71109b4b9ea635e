"""Enums of `mrcfa build`'s options: flavour, use of the plugin."""

from enum import Enum


class FlavourChoice(str, Enum):
    AUTO = "auto"
    TENSORRT = "tensorrt"
    RTX = "rtx"


class PluginUse(str, Enum):
    """The models for which the operator `SelectTokens` becomes a plugin."""

    AUTO = "auto"
    """Models that keep more tokens than TensorRT's TopK can select."""
    NEVER = "never"
    ALWAYS = "always"
