"""Videos with ground truth on disk: VSPW's and Cityscapes' own folder layouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.config import Dataset
from mrcfa.errors import MrcfaError, named
from mrcfa.extras import load
from mrcfa.metrics import IGNORED

Labels = NDArray[np.uint8]


@dataclass(frozen=True)
class Clip:
    """One video: its images in order, and masks for those of them that are annotated."""

    name: str
    images: tuple[Path, ...]
    masks: Mapping[Path, Path]


@dataclass(frozen=True)
class LabelledVideos:
    """A split of a dataset. Consistency is defined if it is `dense`: every frame is annotated."""

    dataset: Dataset
    root: Path
    split: str
    clips: tuple[Clip, ...]
    dense: bool

    def truth(self, mask: Path) -> Labels:
        """A mask as classes from 0, `IGNORED` where there is none."""
        pillow = load("PIL.Image")
        try:
            with pillow.open(mask) as opened:
                labels = np.asarray(opened)
        except OSError as error:
            raise MrcfaError(f"the mask {mask} cannot be read: {error}") from None
        if labels.ndim != 2 or labels.dtype != np.uint8:
            raise MrcfaError(f"the mask {mask} is no image of 8-bit labels; save it as indexed PNG")
        return _CLASS_OF[self.dataset][labels]


def labelled_videos(root: Path, split: str, reach: int) -> LabelledVideos:
    """The dataset at `root`, told by its folders.

    `reach` is how many frames back the model looks: where single frames are annotated, earlier
    ones cannot change the answer and are not read.
    """
    if not root.is_dir():
        raise MrcfaError(f"there is no dataset at {root}; mrcfa sample {root} makes a small one")
    if (root / "data").is_dir():
        videos = LabelledVideos(Dataset.VSPW, root, split, tuple(_vspw(root, split)), dense=True)
    elif (root / "leftImg8bit_sequence").is_dir():
        clips = tuple(_cityscapes(root, split, reach))
        videos = LabelledVideos(Dataset.CITYSCAPES, root, split, clips, dense=False)
    else:
        raise MrcfaError(
            f"{root} is neither VSPW (data/<video>/origin and mask, {split}.txt) "
            "nor Cityscapes (leftImg8bit_sequence, gtFine)"
        )
    if not videos.clips:
        raise MrcfaError(f"the split {split!r} of {root} has no videos")
    return videos


def _vspw(root: Path, split: str) -> list[Clip]:
    """`data/<video>/origin/*.jpg` with a mask of the same stem in `data/<video>/mask/*.png`."""
    index = root / f"{split}.txt"
    if not index.is_file():
        found = [path.stem for path in sorted(root.glob("*.txt"))]
        raise MrcfaError(f"{root} has no {index.name}; its splits are {named(found) or 'none'}")
    clips = []
    for name in index.read_text(encoding="utf-8").split():
        images = _files(root / "data" / name / "origin", ".jpg")
        masks = {path.stem: path for path in _files(root / "data" / name / "mask", ".png")}
        missing = [path for path in images if path.stem not in masks]
        if missing or not images:
            what = f"{named(missing, most=3)} has no mask" if missing else "there are no images"
            raise MrcfaError(f"video {name} of {index} is not complete: {what}")
        clips.append(Clip(name, images, {path: masks[path.stem] for path in images}))
    return clips


def _cityscapes(root: Path, split: str, reach: int) -> list[Clip]:
    """Every annotated frame with the frames before it.

    `leftImg8bit_sequence/<split>/<city>/<city>_<sequence>_<frame>_leftImg8bit.png`, and in
    `gtFine` the same name with `_gtFine_labelIds`.
    """
    masks = sorted((root / "gtFine" / split).glob("*/*_gtFine_labelIds.png"))
    if not masks:
        raise MrcfaError(f"{root / 'gtFine' / split} has no *_gtFine_labelIds.png; choose --split")
    clips = []
    for mask in masks:
        city, sequence, number = mask.name.removesuffix("_gtFine_labelIds.png").split("_")
        folder = root / "leftImg8bit_sequence" / split / city
        wanted = range(max(0, int(number) - reach), int(number) + 1)
        names = [f"{city}_{sequence}_{frame:06d}_leftImg8bit.png" for frame in wanted]
        images = tuple(folder / name for name in names if (folder / name).is_file())
        if not images or images[-1].name != names[-1]:
            raise MrcfaError(f"the frame of {mask} is missing: {folder / names[-1]}")
        clips.append(Clip(f"{city}_{sequence}_{number}", images, {images[-1]: mask}))
    return clips


def _files(folder: Path, suffix: str) -> tuple[Path, ...]:
    """Sorted; without the hidden files that some archives carry."""
    files = folder.glob(f"*{suffix}")
    return tuple(sorted(file for file in files if not file.name.startswith(".")))


def _table(classes: dict[int, int]) -> Labels:
    table = np.full(256, IGNORED, np.uint8)
    table[list(classes)] = list(classes.values())
    return table


_CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""labelIds of the classes that are evaluated, in the order of their trainIds."""

_CLASS_OF = {
    Dataset.VSPW: _table({value: value - 1 for value in range(1, IGNORED)}),
    Dataset.CITYSCAPES: _table({label: train for train, label in enumerate(_CITYSCAPES_IDS)}),
}
"""Label in a mask file -> class."""
