"""`Config`, every hyperparameter of a model; `Backbone`, the MiT sizes; `preset`, the paper's."""

import math
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from mrcfa import bounds
from mrcfa.errors import InvalidValue

HEADS = (1, 2, 5, 8)
"""Of attention in MiT's stages."""
REDUCTIONS = (8, 4, 2, 1)
"""Of keys and values in MiT's stages, along each side."""
MLP_RATIO = 4
FEATURE_CHANNELS = 256
"""Channels of the fused feature F and of the values (SegFormer's decode head)."""
TOP_QUERIES = 5
"""A key token's importance is the sum of its n largest affinities; the paper's n."""

MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
"""RGB normalisation of both datasets: (pixel - MEAN) / STD."""

STRIDES = (32, 16, 8, 4)
"""Of the encoder's stages, in input pixels, coarsest first."""


class Backbone(str, Enum):
    """Mix Transformer sizes (SegFormer, table 6), and how the paper sets MRCFA up for each."""

    B0 = "b0"
    B1 = "b1"
    B2 = "b2"
    B3 = "b3"
    B4 = "b4"
    B5 = "b5"

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the stages, finest first."""
        return (32, 64, 160, 256) if self is Backbone.B0 else (64, 128, 320, 512)

    @property
    def depths(self) -> tuple[int, ...]:
        """Blocks of the stages, finest first."""
        return _DEPTHS[self]

    @property
    def keep(self) -> float:
        """The paper's p: the share of reference tokens that STM keeps."""
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
    """What is trained: the paper's model, or a baseline of its ablation."""

    MRCFA = "mrcfa"
    SEGFORMER = "segformer"
    """One frame alone."""
    FEATURE_PYRAMID = "feature-pyramid"
    """Features are merged over the scales instead of affinities."""

    @property
    def display_name(self) -> str:
        """As the paper spells it."""
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
    """One model, whole: no table has to be looked up to build it again."""

    dataset: str
    """Whose preset it started from; the classes may be others."""
    backbone: str
    """Whose tables it started from; the model is built from the fields below."""
    classes: int
    size: tuple[int, int]
    """(height, width) of the network's input."""
    references: tuple[int, ...]
    """How many frames each reference lies before the target, farthest first; SegFormer has none."""
    scales: int
    """How many scales of affinity there are, counted from the coarsest, 1/32."""
    key_stride: int
    """The grid on which keys and values live; N tokens per reference."""
    keep: float
    """The paper's p: STM keeps int(p·N) tokens of every reference."""
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]
    """Of SAR's convs at each scale, coarsest first; a block of MAA has as many, of size 3."""
    affinity_channels: int
    sar: bool = True
    """Single-scale affinity refinement; without it the maps are aggregated as they are."""
    maa: bool = True
    """Multi-scale affinity aggregation; without it the finest scale stands alone."""
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
        if any(len(each) != len(STRIDES) or min(each) < 1 for each in stages):
            raise InvalidValue(f"widths {self.widths} and depths {self.depths} are not four each")
        if self.block_parameters > bounds.PARAMETERS:
            raise InvalidValue(
                f"widths {self.widths} and depths {self.depths} make a model of more than "
                f"{bounds.PARAMETERS:,} parameters; choose smaller ones"
            )
        if any(width % heads for width, heads in zip(self.widths, HEADS, strict=True)):
            raise InvalidValue(f"widths {self.widths} are no multiples of the heads {HEADS}")
        if self.affinity_channels < 1:
            raise InvalidValue(f"affinity_channels is {self.affinity_channels}; use at least 1")
        if not 0 < self.keep <= 1:
            raise InvalidValue(f"keep is {self.keep:g}; it must lie in (0, 1], as 0.5 does")
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
            each and all(kernel > 0 and kernel % 2 for kernel in each) for each in refined
        ):
            raise InvalidValue(
                f"kernels {self.kernels} must list odd sizes for each of {self.scales} scales, "
                "such as ((3, 3), (3, 3), (5, 3))"
            )
        check_size(self.size)

    @property
    def block_parameters(self) -> int:
        """How many the encoder's blocks have, norms and biases apart; a model has more."""
        return sum(
            depth * width**2 * (4 + 2 * MLP_RATIO + (reduction**2 if reduction > 1 else 0))
            for depth, width, reduction in zip(self.depths, self.widths, REDUCTIONS, strict=True)
        )

    def _check_bounds(self) -> None:
        """Refuse what a file from elsewhere may ask for before any model is built from it."""
        for name, values, most in (
            ("size", self.size, bounds.SIDE),
            ("references", self.references, bounds.OFFSET),
            ("widths", self.widths, bounds.CHANNELS),
            ("depths", self.depths, bounds.BLOCKS),
            ("kernels", tuple(chain(*self.kernels)), bounds.KERNEL),
            ("affinity_channels", (self.affinity_channels,), bounds.AFFINITY_CHANNELS),
        ):
            if len(values) > bounds.NUMBERS:
                raise InvalidValue(
                    f"{name} lists {len(values)} numbers; {bounds.NUMBERS} are the most"
                )
            if max(values, default=0) > most:
                raise InvalidValue(f"{name} has {max(values)}; {most} is the most")

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the affinity scales, coarsest first: 32, 16, …"""
        return STRIDES[: self.scales]

    @property
    def used_strides(self) -> tuple[int, ...]:
        """Scales that reach the output; without MAA only STM's and the finest."""
        every = self.maa or self.method is Method.FEATURE_PYRAMID
        return self.strides if every else tuple(dict.fromkeys((32, self.strides[-1])))

    @property
    def output_stride(self) -> int:
        """The grid on which values are retrieved: the finest scale, and 1/8 at the coarsest."""
        return min(8, self.strides[-1])

    @property
    def depth(self) -> int:
        """M, how many frames back the farthest reference lies; 0 for a model without memory."""
        return max(self.references, default=0)

    @property
    def tokens(self) -> int:
        """N, the tokens of a reference."""
        return self.tokens_at(self.key_stride)

    @property
    def kept(self) -> int:
        """S, how many of a reference's tokens survive STM; 0 for a model without memory."""
        return self.kept_of(self.tokens) if self.references else 0

    def kept_of(self, tokens: int) -> int:
        return max(1, int(self.keep * tokens))

    def width(self, stride: int) -> int:
        """Channels of the encoder's stage at this stride."""
        return self.widths[::-1][STRIDES.index(stride)]

    def kernels_at(self, stride: int) -> tuple[int, ...]:
        return self.kernels[STRIDES.index(stride)]

    def grid(self, stride: int) -> tuple[int, int]:
        height, width = self.size
        return height // stride, width // stride

    def tokens_at(self, stride: int) -> int:
        return math.prod(self.grid(stride))

    def key_tokens(self, stride: int) -> int:
        """Key tokens of a scale: those of a coarser grid than the reference's are fewer than N."""
        return self.tokens_at(max(stride, self.key_stride))


def check_size(size: tuple[int, int]) -> None:
    """Refuse sizes that the encoder's strides do not divide, and one token alone."""
    height, width = size
    valid = [max(32, -(-side // 32) * 32) for side in size]
    if valid == [32, 32]:
        valid[1] = 64
    if valid != [height, width]:
        why = "is one token, too few for a norm" if size == (32, 32) else "is no multiple of 32"
        raise InvalidValue(
            f"size {height}x{width} {why}; the next valid size is {valid[0]}x{valid[1]}"
        )
