"""`Config`, all hyperparameters of a model; `Backbone`, the MiT sizes; `Method`, the methods."""

import math
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from mrcfa import bounds
from mrcfa.errors import InvalidValue

HEADS = (1, 2, 5, 8)
"""Attention heads of MiT's stages, finest first."""
REDUCTIONS = (8, 4, 2, 1)
"""Factors by which MiT's stages shrink height and width of keys and values, finest first."""
MLP_RATIO = 4
FEATURE_CHANNELS = 256
"""Channels of the fused feature F and of the values (SegFormer's decode head)."""
TOP_QUERIES = 5
"""The paper's n: the importance of a key token is the sum of its n largest affinities."""

MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
"""RGB normalisation for all datasets: (pixel - MEAN) / STD."""

STRIDES = (32, 16, 8, 4)
"""Strides of the encoder's stages in input pixels, coarsest first."""


class Backbone(str, Enum):
    """Mix Transformer sizes (SegFormer, table 6) with the paper's settings of MRCFA for each."""

    B0 = "b0"
    B1 = "b1"
    B2 = "b2"
    B3 = "b3"
    B4 = "b4"
    B5 = "b5"

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the encoder's stages, finest first."""
        return (32, 64, 160, 256) if self is Backbone.B0 else (64, 128, 320, 512)

    @property
    def depths(self) -> tuple[int, ...]:
        """Blocks of the encoder's stages, finest first."""
        return _DEPTHS[self]

    @property
    def keep(self) -> float:
        """The paper's p: the share of a reference's tokens that STM keeps."""
        return 0.8 if self is Backbone.B0 else 0.5

    @property
    def kernels(self) -> tuple[tuple[int, ...], ...]:
        """Kernel sizes of SAR's convolutions at each of `STRIDES`."""
        return ((3, 3), (3, 3), (5, 3), (5, 3)) if self is Backbone.B1 else ((3,), (5,), (5,), (5,))

    @property
    def affinity_channels(self) -> int:
        """Channels of an affinity map between the blocks of SAR and MAA."""
        return 2 if self is Backbone.B1 else 1


class Method(str, Enum):
    """The paper's model, or a baseline of its ablation."""

    MRCFA = "mrcfa"
    SEGFORMER = "segformer"
    """Single-frame baseline."""
    FEATURE_PYRAMID = "feature-pyramid"
    """Baseline that merges features over the scales, not affinities."""

    @property
    def display_name(self) -> str:
        """The method's name as the paper spells it."""
        return _DISPLAY_NAMES[self]


_DISPLAY_NAMES = {
    Method.MRCFA: "MRCFA",
    Method.SEGFORMER: "SegFormer",
    Method.FEATURE_PYRAMID: "feature pyramid",
}


_DEPTHS = {
    Backbone.B0: (2, 2, 2, 2),
    Backbone.B1: (2, 2, 2, 2),
    Backbone.B2: (3, 4, 6, 3),
    Backbone.B3: (3, 4, 18, 3),
    Backbone.B4: (3, 8, 27, 3),
    Backbone.B5: (3, 6, 40, 3),
}


@dataclass(frozen=True)
class Config:
    """All hyperparameters of one model; no other table is needed to build it again."""

    dataset: str
    """Name of the preset that this config started from; its classes may differ."""
    backbone: str
    """Name of the backbone that this config started from; the fields below define the model."""
    classes: int
    size: tuple[int, int]
    """(height, width) of the network's input."""
    references: tuple[int, ...]
    """Offsets of the references: frames before the target, farthest first; empty for SegFormer."""
    scales: int
    """Number of affinity scales, counted from the coarsest, 1/32."""
    key_stride: int
    """Stride of the grid of keys and values, which has N tokens per reference."""
    keep: float
    """The paper's p: STM keeps int(p·N) tokens of each reference."""
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]
    """Kernel sizes of SAR's convs per scale, coarsest first; MAA has as many convs of size 3."""
    affinity_channels: int
    sar: bool = True
    """Use single-scale affinity refinement; without it, MAA gets unrefined maps."""
    maa: bool = True
    """Use multi-scale affinity aggregation; without it, only the finest scale is used."""
    method: Method = Method.MRCFA

    def __post_init__(self) -> None:
        for name in ("size", "references", "widths", "depths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "kernels", tuple(map(tuple, self.kernels)))
        if self.method is Method.SEGFORMER:
            object.__setattr__(self, "references", ())
        self._check_bounds()
        if self.key_stride not in STRIDES[:3]:
            raise InvalidValue(f"key_stride is {self.key_stride}; choose one of 32, 16, 8")
        stages = (self.widths, self.depths)
        if any(len(values) != len(STRIDES) or min(values) < 1 for values in stages):
            raise InvalidValue(
                f"widths {self.widths} and depths {self.depths} must be four positive numbers each"
            )
        if self.block_parameters > bounds.PARAMETERS:
            raise InvalidValue(
                f"widths {self.widths} and depths {self.depths} make a model of more than "
                f"{bounds.PARAMETERS:,} parameters; choose smaller ones"
            )
        if any(width % heads for width, heads in zip(self.widths, HEADS, strict=True)):
            raise InvalidValue(f"widths {self.widths} must be multiples of the heads {HEADS}")
        if self.affinity_channels < 1:
            raise InvalidValue(f"affinity_channels is {self.affinity_channels}; use at least 1")
        if not 0 < self.keep <= 1:
            raise InvalidValue(
                f"keep is {self.keep:g}; it must be above 0 and at most 1, such as 0.5"
            )
        if self.scales not in (1, 2, 3, 4):
            raise InvalidValue(f"scales is {self.scales}; choose 1, 2, 3 or 4")
        offsets = self.references
        valid = bool(offsets) or self.method is Method.SEGFORMER
        if not valid or min(offsets, default=1) < 1 or sorted(set(offsets))[::-1] != list(offsets):
            raise InvalidValue(
                f"references {offsets} must be positive offsets, farthest first, such as (9, 6, 3)"
            )
        if not bounds.FEWEST_CLASSES <= self.classes <= bounds.MOST_CLASSES:
            raise InvalidValue(
                f"classes is {self.classes}; a uint8 mask holds {bounds.FEWEST_CLASSES} to "
                f"{bounds.MOST_CLASSES} classes"
            )
        refined = self.kernels[: self.scales]
        if len(refined) < self.scales or not all(
            sizes and all(size > 0 and size % 2 for size in sizes) for sizes in refined
        ):
            raise InvalidValue(
                f"kernels {self.kernels} must list odd sizes for each of {self.scales} scales, "
                "such as ((3, 3), (3, 3), (5, 3))"
            )
        check_size(self.size)

    @property
    def block_parameters(self) -> int:
        """Parameters of the encoder's blocks without norms and biases: a model's lower bound."""
        return sum(
            depth * width**2 * (4 + 2 * MLP_RATIO + (reduction**2 if reduction > 1 else 0))
            for depth, width, reduction in zip(self.depths, self.widths, REDUCTIONS, strict=True)
        )

    def _check_bounds(self) -> None:
        """Refuse values of an untrusted file that would need too much memory or time."""
        for name, values, limit in (
            ("size", self.size, bounds.SIDE),
            ("references", self.references, bounds.OFFSET),
            ("widths", self.widths, bounds.CHANNELS),
            ("depths", self.depths, bounds.BLOCKS),
            ("kernels", tuple(chain(*self.kernels)), bounds.KERNEL),
            ("affinity_channels", (self.affinity_channels,), bounds.AFFINITY_CHANNELS),
        ):
            if len(values) > bounds.NUMBERS:
                raise InvalidValue(
                    f"{name} lists {len(values)} numbers; at most {bounds.NUMBERS} are allowed"
                )
            if max(values, default=0) > limit:
                raise InvalidValue(f"{name} has {max(values)}; at most {limit} is allowed")

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the affinity scales, coarsest first: 32, 16, …"""
        return STRIDES[: self.scales]

    @property
    def used_strides(self) -> tuple[int, ...]:
        """Strides of the scales that affect the output; without MAA, only STM's and the finest."""
        all_used = self.maa or self.method is Method.FEATURE_PYRAMID
        return self.strides if all_used else tuple(dict.fromkeys((32, self.strides[-1])))

    @property
    def output_stride(self) -> int:
        """Stride of the grid on which values are retrieved: the finest scale, but at most 8."""
        return min(8, self.strides[-1])

    @property
    def depth(self) -> int:
        """M, the offset of the farthest reference in frames; 0 for a model without memory."""
        return max(self.references, default=0)

    @property
    def tokens(self) -> int:
        """N, the number of tokens per reference."""
        return self.tokens_at(self.key_stride)

    @property
    def kept(self) -> int:
        """S, the number of tokens per reference that STM keeps; 0 for a model without memory."""
        return self.kept_of(self.tokens) if self.references else 0

    def kept_of(self, tokens: int) -> int:
        """The number of tokens that STM keeps of this many."""
        return max(1, int(self.keep * tokens))

    def width(self, stride: int) -> int:
        """Channels of the encoder's stage with this stride."""
        return self.widths[::-1][STRIDES.index(stride)]

    def kernels_at(self, stride: int) -> tuple[int, ...]:
        return self.kernels[STRIDES.index(stride)]

    def grid(self, stride: int) -> tuple[int, int]:
        height, width = self.size
        return height // stride, width // stride

    def tokens_at(self, stride: int) -> int:
        return math.prod(self.grid(stride))

    def key_tokens(self, stride: int) -> int:
        """Number of key tokens of a scale: N, or fewer if its grid is coarser than `key_stride`."""
        return self.tokens_at(max(stride, self.key_stride))


def check_size(size: tuple[int, int]) -> None:
    """Refuse sizes that are no multiples of 32, and 32x32, which is a single token."""
    height, width = size
    valid = [max(32, -(-side // 32) * 32) for side in size]
    if valid == [32, 32]:
        valid[1] = 64
    if valid != [height, width]:
        reason = "is a single token" if size == (32, 32) else "is not a multiple of 32"
        raise InvalidValue(
            f"size {height}x{width} {reason}; the next valid size is {valid[0]}x{valid[1]}"
        )
