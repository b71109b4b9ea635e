"""Cityscapes (Cordts et al., CVPR 2016): its classes, its preset and its folders."""

from pathlib import Path

from mrcfa.data.dataset import Clip, Dataset, LabelledVideos, Preset
from mrcfa.data.labels import IGNORED, Colour, labels
from mrcfa.errors import InvalidValue, NotFound

_COLOURS: dict[str, Colour] = {
    "road": (128, 64, 128),
    "sidewalk": (244, 35, 232),
    "building": (70, 70, 70),
    "wall": (102, 102, 156),
    "fence": (190, 153, 153),
    "pole": (153, 153, 153),
    "traffic light": (250, 170, 30),
    "traffic sign": (220, 220, 0),
    "vegetation": (107, 142, 35),
    "terrain": (152, 251, 152),
    "sky": (70, 130, 180),
    "person": (220, 20, 60),
    "rider": (255, 0, 0),
    "car": (0, 0, 142),
    "truck": (0, 0, 70),
    "bus": (0, 60, 100),
    "train": (0, 80, 100),
    "motorcycle": (0, 0, 230),
    "bicycle": (119, 11, 32),
}
_LABEL_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""The labelIds of the evaluated classes, in the order of their trainIds."""
_OTHER_IDS = tuple({*range(35), IGNORED} - {*_LABEL_IDS})


def _videos(root: Path, split: str, reach: int) -> LabelledVideos:
    """One clip per annotated frame: the `reach` frames before it, which may be references, and it.

    Frames are `leftImg8bit_sequence/<split>/<city>/<city>_<sequence>_<frame>_leftImg8bit.png`; the
    masks in `gtFine` have `_gtFine_labelIds` in the name instead.
    """
    masks = sorted((root / "gtFine" / split).glob("*/*_gtFine_labelIds.png"))
    if not masks:
        raise NotFound(
            f"{root / 'gtFine' / split} has no *_gtFine_labelIds.png; choose another --split"
        )
    clips = []
    for mask in masks:
        words = mask.name.removesuffix("_gtFine_labelIds.png").split("_")
        if len(words) != 3 or not words[2].isdecimal():
            raise InvalidValue(f"{mask} is not named <city>_<sequence>_<frame>_gtFine_labelIds.png")
        city, sequence, number = words
        folder = root / "leftImg8bit_sequence" / split / city
        wanted = range(max(0, int(number) - reach), int(number) + 1)
        names = [f"{city}_{sequence}_{frame:06d}_leftImg8bit.png" for frame in wanted]
        images = tuple(folder / name for name in names if (folder / name).is_file())
        if not images or images[-1].name != names[-1]:
            raise NotFound(f"the frame of {mask} is missing: {folder / names[-1]}")
        clips.append(Clip(f"{city}_{sequence}_{number}", images, {images[-1]: mask}))
    return LabelledVideos(CITYSCAPES.labels, root, split, tuple(clips), dense=False)


CITYSCAPES = Dataset(
    name="cityscapes",
    labels=labels(list(_COLOURS), list(_COLOURS.values()), _LABEL_IDS, _OTHER_IDS),
    preset=Preset(size=(512, 1024), references=(6, 3), scales=4, key_stride=16),
    is_at=lambda root: (root / "leftImg8bit_sequence").is_dir(),
    videos=_videos,
    layout="leftImg8bit_sequence, gtFine",
)
