"""The registry of datasets, and detection of the dataset in a folder.

To add a dataset, write a module like `vspw` and add it to `DATASETS`.
"""

from pathlib import Path

from mrcfa.data.cityscapes import CITYSCAPES
from mrcfa.data.dataset import Dataset, LabelledVideos
from mrcfa.data.own import LABELS, is_own, own_videos
from mrcfa.data.vspw import VSPW
from mrcfa.errors import InvalidValue, NotFound, named

DATASETS = {dataset.name: dataset for dataset in (VSPW, CITYSCAPES)}


def dataset_named(name: str) -> Dataset:
    """The dataset with this name."""
    if name not in DATASETS:
        raise InvalidValue(f"unknown dataset {name!r}; choose one of {named(DATASETS)}")
    return DATASETS[name]


def is_dataset(root: Path) -> bool:
    """True for a folder with the layout of a dataset, which a folder of images does not have."""
    return root.is_dir() and (is_own(root) or any(known.is_at(root) for known in DATASETS.values()))


def labelled_videos(root: Path, split: str, reach: int) -> LabelledVideos:
    """The videos of a split of the dataset at `root`, which is recognised by its folders.

    `reach` is the model's largest offset in frames.
    """
    if not root.is_dir():
        raise NotFound(f"there is no dataset at {root}; mrcfa sample {root} makes a small one")
    if is_own(root):
        videos = own_videos(root, split)
    else:
        dataset = next((known for known in DATASETS.values() if known.is_at(root)), None)
        if dataset is None:
            layouts = " or ".join(f"{known.name} ({known.layout})" for known in DATASETS.values())
            raise NotFound(
                f"{root} is not a dataset; give one with the folders of {layouts}, or your own "
                f"with VSPW's folders and a {LABELS} beside data/"
            )
        videos = dataset.videos(root, split, reach)
    if not videos.clips:
        raise NotFound(f"the split {split!r} of {root} has no videos")
    return videos
