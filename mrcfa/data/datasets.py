"""Registry of datasets, and which of them a directory holds.

A new one is a module like `vspw` and a line here.
"""

from pathlib import Path

from mrcfa.data.cityscapes import CITYSCAPES
from mrcfa.data.dataset import Dataset, LabelledVideos
from mrcfa.data.own import LABELS, is_own, own_videos
from mrcfa.data.vspw import VSPW
from mrcfa.errors import InvalidValue, NotFound, named

DATASETS = {dataset.name: dataset for dataset in (VSPW, CITYSCAPES)}


def dataset_named(name: str) -> Dataset:
    if name not in DATASETS:
        raise InvalidValue(f"unknown dataset {name!r}; choose one of {named(DATASETS)}")
    return DATASETS[name]


def is_dataset(root: Path) -> bool:
    """Whether a folder looks like one, rather than like a video's images."""
    return root.is_dir() and (is_own(root) or any(each.is_at(root) for each in DATASETS.values()))


def labelled_videos(root: Path, split: str, reach: int) -> LabelledVideos:
    """The dataset at `root`, told by its folders; `reach`: how many frames back the model looks."""
    if not root.is_dir():
        raise NotFound(f"there is no dataset at {root}; mrcfa sample {root} makes a small one")
    if is_own(root):
        videos = own_videos(root, split)
    else:
        known = next((each for each in DATASETS.values() if each.is_at(root)), None)
        if known is None:
            layouts = "; ".join(f"{each.name} ({each.layout})" for each in DATASETS.values())
            raise NotFound(
                f"{root} is no dataset: it looks neither like {layouts}, nor like one of your own "
                f"(VSPW's folders with a {LABELS} beside data/)"
            )
        videos = known.videos(root, split, reach)
    if not videos.clips:
        raise NotFound(f"the split {split!r} of {root} has no videos")
    return videos
