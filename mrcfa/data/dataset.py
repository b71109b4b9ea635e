"""`Dataset`, with classes, preset and folder layout, and `LabelledVideos`, a split on disk."""

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
    """One video: its images in order, and the masks of the annotated ones."""

    name: str
    images: tuple[Path, ...]
    masks: Mapping[Path, Path]
    unmatched: tuple[Path, ...] = ()
    """Other files in the video's folders: neither a frame nor the mask of a frame."""


@dataclass(frozen=True)
class LabelledVideos:
    """The videos of one split of a dataset.

    `dense` means that every frame is annotated, which video consistency needs.
    """

    labels: Labels
    root: Path
    split: str
    clips: tuple[Clip, ...]
    dense: bool

    def check_classes(self, bundle: Path, classes: tuple[str, ...]) -> None:
        """Refuse a bundle with other classes, because its scores would mean nothing."""
        names = self.labels.names
        if classes == names:
            return
        if len(classes) != len(names):
            difference = f"{len(classes)} classes, but {self.root} has {len(names)}"
        else:
            pairs = zip(classes, names, strict=True)
            in_bundle, here = next(pair for pair in pairs if pair[0] != pair[1])
            difference = f"the class {in_bundle!r} where {self.root} has {here!r}"
        raise Mismatch(
            f"{bundle} has {difference}; evaluate it on its own dataset, or export it with the "
            "dataset's --labels"
        )

    def truth(self, mask: Path) -> NDArray[np.uint8]:
        """The classes (h, w) of a mask file, counted from 0; `IGNORED` where there is none."""
        pillow = load("PIL.Image")
        try:
            with pillow.open(mask) as opened:
                values = np.asarray(opened)
        except (OSError, SyntaxError) as error:
            raise Damaged(f"the mask {mask} cannot be read: {error}") from None
        if values.ndim != 2 or values.dtype != np.uint8:
            raise Damaged(
                f"the mask {mask} is not an image of 8-bit labels; save it as indexed PNG"
            )
        return self.labels.classes_of(values, mask)


@dataclass(frozen=True)
class Preset:
    """The paper's settings of the model for a dataset, as fields of `Config`."""

    size: tuple[int, int]
    references: tuple[int, ...]
    scales: int
    key_stride: int


@dataclass(frozen=True)
class Dataset:
    """A known dataset: its classes, the paper's preset, and how to find its videos on disk."""

    name: str
    labels: Labels
    preset: Preset
    is_at: Callable[[Path], bool]
    """True for a folder that has this dataset's layout."""
    videos: Callable[[Path, str, int], LabelledVideos]
    """The videos for (root, split, reach); `reach` is the model's largest offset in frames."""
    layout: str
    """Description of the layout that `is_at` looks for, for error messages."""
