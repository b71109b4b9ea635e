"""How the graphs' tensors are laid out: the contract between encoder, decoder and host."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from export.select_tokens import Selection
from mrcfa.affinity import TOP_QUERIES
from mrcfa.config import Config


@dataclass(frozen=True)
class Layout:
    """Grids and columns of the graphs for one model.

    An entry has one row per token of the key grid; its columns are the keys of all scales, coarsest
    first, then the values. Keys of a coarser grid have fewer tokens than there are rows: their
    tokens are split over as many rows as it takes, so their width shrinks by that factor.
    """

    config: Config

    @property
    def strides(self) -> tuple[int, ...]:
        """Scales that reach the output; without MAA only STM's and the finest."""
        config = self.config
        return config.strides if config.maa else tuple({32: 0, config.strides[-1]: 0})

    def grid(self, stride: int) -> tuple[int, int]:
        height, width = self.config.size
        return height // stride, width // stride

    def tokens(self, stride: int) -> int:
        return math.prod(self.grid(stride))

    def key_grid_stride(self, stride: int) -> int:
        """The grid on which keys of this scale live."""
        return max(stride, self.config.key_stride)

    @property
    def rows(self) -> int:
        """N, the tokens of a reference."""
        return self.tokens(self.config.key_stride)

    def packing(self, stride: int) -> int:
        """Over how many rows of an entry one key token of this scale is spread."""
        return self.rows // self.tokens(self.key_grid_stride(stride))

    @property
    def columns(self) -> tuple[int, ...]:
        """Widths of an entry's parts: keys of each scale, then values."""
        keys = (self.config.width(stride) // self.packing(stride) for stride in self.strides)
        return (*keys, self.config.classes)

    @property
    def depth(self) -> int:
        """M, how many entries the memory holds."""
        return max(self.config.references)

    @property
    def selection(self) -> Selection:
        height, width = self.grid(32)
        return Selection(
            keep=self.config.kept(self.rows),
            top=min(TOP_QUERIES, self.tokens(32)),
            height=height,
            width=width,
            factor=32 // self.config.key_stride,
        )

    @property
    def encoder_outputs(self) -> list[str]:
        """Finest queries first, as the contract lists them."""
        return ["base", *(f"query_{stride}" for stride in reversed(self.strides)), "entry"]

    def decoder_inputs(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Tensors of the decoder's input shapes, in its order."""
        config = self.config
        inputs = {
            "base": torch.zeros(1, config.classes, *self.grid(config.output_stride), dtype=dtype)
        }
        for stride in reversed(self.strides):
            shape = (1, self.tokens(stride), config.width(stride))
            inputs[f"query_{stride}"] = torch.zeros(shape, dtype=dtype)
        inputs["entry"] = torch.zeros(1, self.rows, sum(self.columns), dtype=dtype)
        inputs["memory"] = torch.zeros(self.depth, self.rows, sum(self.columns), dtype=dtype)
        inputs["frame"] = torch.zeros(1, dtype=torch.int32)
        return inputs
