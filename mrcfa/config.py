"""What a model is made of: backbones, datasets and their presets, as literal tables."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from mrcfa.errors import MrcfaError, named

FEATURE_CHANNELS = 256
"""Channels of the fused feature F and of the values (SegFormer's decode head)."""

MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
"""RGB normalisation of both datasets: (pixel - MEAN) / STD."""


class Backbone(str, Enum):
    """Mix Transformer sizes (SegFormer, table 6)."""

    B0 = "b0"
    B1 = "b1"
    B2 = "b2"
    B3 = "b3"
    B4 = "b4"
    B5 = "b5"

    @property
    def widths(self) -> tuple[int, int, int, int]:
        return (32, 64, 160, 256) if self is Backbone.B0 else (64, 128, 320, 512)

    @property
    def depths(self) -> tuple[int, int, int, int]:
        return _DEPTHS[self]

    @property
    def keep(self) -> float:
        """The paper's p: the share of reference tokens that STM keeps."""
        return 0.8 if self is Backbone.B0 else 0.5

    @property
    def kernels(self) -> dict[int, tuple[int, ...]]:
        """Kernel sizes of SAR's convolutions at each scale."""
        if self is Backbone.B1:
            return {32: (3, 3), 16: (3, 3), 8: (5, 3), 4: (5, 3)}
        return {32: (3,), 16: (5,), 8: (5,), 4: (5,)}

    @property
    def affinity_channels(self) -> int:
        """Channels of an affinity map between the blocks of SAR and MAA."""
        return 2 if self is Backbone.B1 else 1


_DEPTHS: dict[Backbone, tuple[int, int, int, int]] = {
    Backbone.B0: (2, 2, 2, 2),
    Backbone.B1: (2, 2, 2, 2),
    Backbone.B2: (3, 4, 6, 3),
    Backbone.B3: (3, 4, 18, 3),
    Backbone.B4: (3, 8, 27, 3),
    Backbone.B5: (3, 6, 40, 3),
}


class Dataset(str, Enum):
    VSPW = "vspw"
    CITYSCAPES = "cityscapes"


@dataclass(frozen=True)
class Config:
    """One model. `size` is (height, width) of the network's input; strides are in input pixels."""

    dataset: Dataset
    backbone: Backbone
    classes: int
    size: tuple[int, int]
    references: tuple[int, ...]
    """How many frames each reference lies before the target, farthest first."""
    scales: int
    """How many scales of affinity there are, counted from the coarsest, 1/32."""
    key_stride: int
    """The grid on which keys and values live; N tokens per reference."""
    keep: float
    """The paper's p: STM keeps int(p·N) tokens of every reference."""
    sar: bool = True
    """Single-scale affinity refinement; without it the maps are aggregated as they are."""
    maa: bool = True
    """Multi-scale affinity aggregation; without it the finest scale stands alone."""

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise MrcfaError(f"keep is {self.keep:g}; it must lie in (0, 1], as 0.5 does")
        if self.scales not in (1, 2, 3, 4):
            raise MrcfaError(f"scales is {self.scales}; choose 1, 2, 3 or 4")
        offsets = self.references
        if not offsets or min(offsets) < 1 or sorted(set(offsets), reverse=True) != list(offsets):
            raise MrcfaError(
                f"references {offsets} must be positive offsets, farthest first, such as (9, 6, 3)"
            )
        if self.classes < 2 or self.classes > 255:
            raise MrcfaError(f"classes is {self.classes}; a uint8 mask holds 2 to 255 classes")
        check_size(self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the affinity scales, coarsest first: 32, 16, …"""
        return (32, 16, 8, 4)[: self.scales]

    @property
    def output_stride(self) -> int:
        """The grid on which values are retrieved: the finest scale, and 1/8 at the coarsest."""
        return min(8, self.strides[-1])

    def width(self, stride: int) -> int:
        """Channels of the encoder's stage at this stride."""
        return self.backbone.widths[stride.bit_length() - 3]

    def kept(self, tokens: int) -> int:
        """S: how many of a reference's tokens survive STM."""
        return max(1, int(self.keep * tokens))


_PRESETS: dict[Dataset, dict[str, Any]] = {
    Dataset.VSPW: {
        "classes": 124,
        "size": (480, 864),
        "references": (9, 6, 3),
        "scales": 3,
        "key_stride": 32,
    },
    Dataset.CITYSCAPES: {
        "classes": 19,
        "size": (512, 1024),
        "references": (6, 3),
        "scales": 4,
        "key_stride": 16,
    },
}


def preset(dataset: str, backbone: str, **changes: Any) -> Config:
    """The paper's model for a dataset, with fields of `Config` changed by name.

    >>> preset("vspw", "b1", maa=False, keep=0.3).references
    (9, 6, 3)
    """
    kind, size = _member(Dataset, dataset, "dataset"), _member(Backbone, backbone, "backbone")
    config = Config(dataset=kind, backbone=size, keep=size.keep, **_PRESETS[kind])
    unknown = changes.keys() - config.__dataclass_fields__.keys()
    if unknown:
        raise MrcfaError(
            f"a config has no field {named(sorted(unknown))}; "
            f"it has {named(config.__dataclass_fields__, most=20)}"
        )
    return replace(config, **changes)


def check_size(size: tuple[int, int]) -> None:
    """Refuse sizes that the encoder's strides do not divide, and one token alone."""
    height, width = size
    valid = [max(32, -(-side // 32) * 32) for side in size]
    if valid == [32, 32]:
        valid[1] = 64
    if valid != [height, width]:
        why = "is one token, too few for a norm" if size == (32, 32) else "is no multiple of 32"
        raise MrcfaError(
            f"size {height}x{width} {why}; the next valid size is {valid[0]}x{valid[1]}"
        )


_Kind = TypeVar("_Kind", bound=Enum)


def _member(kind: type[_Kind], value: str, what: str) -> _Kind:
    try:
        return kind(value)
    except ValueError:
        valid = named(member.value for member in kind)
        raise MrcfaError(f"unknown {what} {value!r}; choose one of {valid}") from None
