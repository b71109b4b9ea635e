"""How the graphs' tensors are laid out: the contract between encoder, decoder and host."""

import math
from dataclasses import dataclass

from export.select_tokens import Selection
from mrcfa.affinity import TOP_QUERIES
from mrcfa.config import Config

TOPK_LIMIT = 3840
"""TensorRT's largest K for TopK; beyond it STM needs the plugin."""


@dataclass(frozen=True)
class Layout:
    """Grids and columns of the graphs for one model.

    An entry has one row per token of the key grid; its columns are the keys of every scale, coarsest
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
    def query_names(self) -> list[str]:
        """Finest first, as the contract lists them."""
        return [f"query_{stride}" for stride in reversed(self.strides)]

    @property
    def encoder_outputs(self) -> list[str]:
        return ["base", *self.query_names, "entry"]
