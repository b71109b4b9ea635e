"""A summary of a dataset, shown before training."""

from collections import Counter

import numpy as np

from mrcfa.data.dataset import LabelledVideos
from mrcfa.data.labels import IGNORED
from mrcfa.errors import counted, named
from mrcfa.machine.extras import load

MASKS = 300
"""Largest number of masks that are read, evenly spread over the dataset."""


def summary(train: LabelledVideos, val: LabelledVideos, reach: int) -> list[str]:
    """Sentences about the frames, masks and classes of a dataset; a mask that does not fit raises.

    `reach` is the model's largest offset in frames.
    """
    return [*_counts(train), *_counts(val), *_classes_and_sizes(train), *_too_short(train, reach)]


def _counts(videos: LabelledVideos) -> list[str]:
    """Numbers of videos, frames and masks of a split, and its unused files."""
    frames = sum(len(clip.images) for clip in videos.clips)
    masks = sum(len(clip.masks) for clip in videos.clips)
    counts = (
        f"{videos.split}: {counted(len(videos.clips), 'video')}, {counted(frames, 'frame')}, "
        f"{counted(masks, 'mask')}, {counted(frames - masks, 'frame')} without a mask"
    )
    unmatched = [path for clip in videos.clips for path in clip.unmatched]
    if not unmatched:
        return [counts]
    listed = named(("/".join(path.parts[-3:]) for path in unmatched), most=3)
    return [
        counts,
        f"{videos.split}: {counted(len(unmatched), 'file')} not used: {listed}; a frame is a .jpg "
        "or .png, and its mask a .png of the same name",
    ]


def _classes_and_sizes(videos: LabelledVideos) -> list[str]:
    pairs = [(image, mask) for clip in videos.clips for image, mask in clip.masks.items()]
    looked_at = pairs[:: max(1, -(-len(pairs) // MASKS))]
    pillow = load("PIL.Image")
    sizes: Counter[tuple[int, int]] = Counter()
    counts = np.zeros(256, np.int64)
    for image, mask in looked_at:
        with pillow.open(image) as opened:
            sizes[opened.size] += 1
        counts += np.bincount(videos.truth(mask).ravel(), minlength=256)
    where = counted(len(pairs), "mask")
    if len(looked_at) < len(pairs):
        where = f"{len(looked_at)} of {where}"
    names = videos.labels.names
    shares = dict(zip(names, counts[: len(names)] / max(1, counts[:IGNORED].sum()), strict=True))
    present = sorted((name for name in names if shares[name]), key=lambda name: -shares[name])
    listed = named(f"{name} {shares[name]:.1%}" for name in present)
    ignored = counts[IGNORED] / max(1, counts.sum())
    found = [f"classes in {where}: {listed or 'none'}; without ground truth: {ignored:.1%}"]
    if len(present) < len(names):
        missing = named(name for name in names if not shares[name])
        found.append(f"classes that never occur in {where} and cannot be learnt: {missing}")
    if len(sizes) > 1:
        listed = named(f"{height}x{width}" for (width, height), _ in sizes.most_common(3))
        found.append(f"frames have {len(sizes)} sizes ({listed}, …); all are resized to --size")
    return found


def _too_short(videos: LabelledVideos, reach: int) -> list[str]:
    short = [clip.name for clip in videos.clips if len(clip.images) <= reach]
    if not short:
        return []
    return [
        f"videos too short for a reference {reach} frames back, which use their first frame "
        f"instead: {named(short, most=3)}"
    ]
