"""Custom datasets: VSPW's folders with a `labels.json` beside `data/`.

Frames may lack a mask; they are references of the annotated ones.
"""

from pathlib import Path

from mrcfa.data.dataset import LabelledVideos
from mrcfa.data.folders import clips_in_folders
from mrcfa.data.labels import read_labels

LABELS = "labels.json"


def is_own(root: Path) -> bool:
    return (root / "data").is_dir() and (root / LABELS).is_file()


def own_videos(root: Path, split: str) -> LabelledVideos:
    clips = clips_in_folders(root, split, sparse=True)
    dense = all(len(clip.masks) == len(clip.images) for clip in clips)
    return LabelledVideos(read_labels(root / LABELS), root, split, clips, dense)
