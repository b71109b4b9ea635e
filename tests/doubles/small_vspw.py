"""A small dataset in VSPW's own layout: scenes of the sample world, with a patch without truth."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mrcfa.data.vspw import VSPW
from mrcfa.data.world.labels import WORLD
from mrcfa.data.world.scene import scene as street
from mrcfa.video.sample import RATE
from mrcfa.video.sinks import open_sink

Picture = NDArray[np.uint8]
_ALIKE = {"pavement": "path", "wall": "handrail_or_fence", "sign": "billboard_or_Bulletin_Board"}
VALUES = np.array(
    [1 + VSPW.labels.names.index(_ALIKE.get(name, name)) for name in WORLD.names], np.uint8
)


def scene(frames: int, size: tuple[int, int], seed: int) -> Iterator[tuple[Picture, Picture]]:
    """Images and VSPW masks: 0 has no ground truth, v is class v − 1."""
    for image, mask in street(frames, size, seed):
        labelled = VALUES[mask]
        labelled[: size[0] // 8, : size[1] // 8] = 0
        yield image, labelled


def write_vspw(folder: Path, videos: int, frames: int, size: tuple[int, int]) -> None:
    names = [f"sample_{number}" for number in range(videos)]
    for number, name in enumerate(names):
        stem = folder / "data" / name
        for kind in ("origin", "mask"):
            (stem / kind).mkdir(parents=True)
        for t, (image, mask) in enumerate(scene(frames, size, number)):
            Image.fromarray(image).save(stem / "origin" / f"{t:08d}.jpg", quality=95)
            Image.fromarray(mask).save(stem / "mask" / f"{t:08d}.png")
    (folder / "val.txt").write_text("".join(f"{name}\n" for name in names))
    with open_sink(str(folder / "street.mp4"), (), np.zeros((0, 3), np.uint8), RATE) as write:
        for t, (image, _) in enumerate(scene(frames, size, 0)):
            write(f"{t:06d}", image)
