"""`Dataset`: classes, preset, directory layout; `LabelledVideos`: a split of one on disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.labels import Labels
from mrcfa.errors import Damaged, Mismatch
from mrcfa.machine.extras import load


@dataclass(frozen=True)
class Clip:
    """One video: its images in order, and masks for those of them that are annotated."""

    name: str
    images: tuple[Path, ...]
    masks: Mapping[Path, Path]
    unmatched: tuple[Path, ...] = ()
    """Files beside them that are neither a frame nor the mask of one."""


@dataclass(frozen=True)
class LabelledVideos:
    """A split of a dataset. Consistency is defined if it is `dense`: every frame is annotated."""

    labels: Labels
    root: Path
    split: str
    clips: tuple[Clip, ...]
    dense: bool

    def check_classes(self, bundle: Path, ours: tuple[str, ...]) -> None:
        """Refuse a bundle of other classes: a score is of classes that both sides mean alike."""
        theirs = self.labels.names
        if ours == theirs:
            return
        if len(ours) != len(theirs):
            what = f"{len(ours)} classes and {self.root} {len(theirs)}"
        else:
            one, other = next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
            what = f"the class {one!r} where {self.root} has {other!r}"
        raise Mismatch(
            f"{bundle} has {what}; evaluate it on its own dataset, or export it with its --labels"
        )

    def truth(self, mask: Path) -> NDArray[np.uint8]:
        """A mask as classes from 0, `IGNORED` where there is none."""
        pillow = load("PIL.Image")
        try:
            with pillow.open(mask) as opened:
                values = np.asarray(opened)
        except (OSError, SyntaxError) as error:
            raise Damaged(f"the mask {mask} cannot be read: {error}") from None
        if values.ndim != 2 or values.dtype != np.uint8:
            raise Damaged(f"the mask {mask} is no image of 8-bit labels; save it as indexed PNG")
        return self.labels.classes_of(values, mask)


@dataclass(frozen=True)
class Preset:
    """How the paper sets the model up for a dataset; the fields are those of `Config`."""

    size: tuple[int, int]
    references: tuple[int, ...]
    scales: int
    key_stride: int


@dataclass(frozen=True)
class Dataset:
    name: str
    labels: Labels
    preset: Preset
    is_at: Callable[[Path], bool]
    """Whether a directory looks like it."""
    videos: Callable[[Path, str, int], LabelledVideos]
    """(root, split, reach) -> its videos; `reach` is how many frames back the model looks."""
    layout: str
    """What `is_at` looks for, in words."""
