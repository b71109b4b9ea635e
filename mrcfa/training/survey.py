"""A look at a dataset before hours are spent on it."""

from collections import Counter

import numpy as np

from mrcfa.data.dataset import LabelledVideos
from mrcfa.data.labels import IGNORED
from mrcfa.errors import named
from mrcfa.extras import load

MASKS = 300
"""Looked at, evenly spread; a large dataset has many more."""


def remarks(videos: LabelledVideos, reach: int) -> list[str]:
    """Sentences about what one would want to know; a mask that does not fit is an error.

    `reach` is how many frames back the references lie.
    """
    pairs = [(image, mask) for clip in videos.clips for image, mask in clip.masks.items()]
    looked_at = pairs[:: max(1, -(-len(pairs) // MASKS))]
    pillow = load("PIL.Image")
    sizes: Counter[tuple[int, int]] = Counter()
    counts = np.zeros(256, np.int64)
    for image, mask in looked_at:
        with pillow.open(image) as opened:
            sizes[opened.size] += 1
        counts += np.bincount(videos.truth(mask).ravel(), minlength=256)
    found = []
    if len(sizes) > 1:
        listed = named(f"{height}x{width}" for (width, height), _ in sizes.most_common(3))
        found.append(f"frames have {len(sizes)} sizes ({listed}, …) and are all resized to --size")
    short = [clip.name for clip in videos.clips if len(clip.images) <= reach]
    if short:
        found.append(
            f"{named(short, most=3)}: too short for a reference {reach} frames back; the first "
            "frame serves instead"
        )
    names = videos.labels.names
    missing = [name for name, count in zip(names, counts[:IGNORED], strict=False) if not count]
    if missing:
        where = f"the {len(pairs)} masks"
        if len(looked_at) < len(pairs):
            where = f"{len(looked_at)} of {where}"
        found.append(f"{named(missing)} never occurs in {where} and will not be learnt")
    return found
