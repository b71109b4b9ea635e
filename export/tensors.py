"""The tensors between encoder, decoder and host: the contract of docs/bundle.md as code.

An entry has one row per token of the key grid. Its columns are the keys of all scales, coarsest
first, then the values. Keys of a coarser grid have fewer tokens than there are rows: a token is
split over several rows, and the keys' width is divided by their number.
"""

import torch
from torch import Tensor

from mrcfa.export.select_tokens import SelectTokens
from mrcfa.model.config import FEATURE_CHANNELS, TOP_QUERIES, Config, Method


def entry_columns(config: Config) -> tuple[int, ...]:
    """Widths of an entry's parts: the keys of each scale, then the values.

    Values are class scores in MRCFA and features in a feature pyramid.
    """
    keys = (
        config.width(stride) * config.key_tokens(stride) // config.tokens
        for stride in config.used_strides
    )
    features = config.method is Method.FEATURE_PYRAMID
    return (*keys, FEATURE_CHANNELS if features else config.classes)


def selection(config: Config) -> SelectTokens:
    height, width = config.grid(32)
    return SelectTokens(
        keep=config.kept,
        top=min(TOP_QUERIES, config.tokens_at(32)),
        height=height,
        width=width,
        factor=32 // config.key_stride,
    )


def encoder_outputs(config: Config) -> list[str]:
    """Names of the encoder's outputs, finest queries first; scores alone without a memory."""
    if not config.references:
        return ["base"]
    return ["base", *(f"query_{stride}" for stride in reversed(config.used_strides)), "entry"]


def decoder_inputs(config: Config, dtype: torch.dtype, streams: int = 1) -> dict[str, Tensor]:
    """Zeros for each input of the decoder, in its order; streams are the first axis."""
    grid = config.grid(config.output_stride if config.references else 4)
    inputs = {"base": torch.zeros(streams, config.classes, *grid, dtype=dtype)}
    number = torch.zeros(streams, dtype=torch.int32)
    if not config.references:
        return inputs | {"frame": number}
    entry = (config.tokens, sum(entry_columns(config)))
    for stride in reversed(config.used_strides):
        shape = (streams, config.tokens_at(stride), config.width(stride))
        inputs[f"query_{stride}"] = torch.zeros(shape, dtype=dtype)
    inputs["entry"] = torch.zeros(streams, *entry, dtype=dtype)
    inputs["memory"] = torch.zeros(streams, config.depth, *entry, dtype=dtype)
    return inputs | {"frame": number}
