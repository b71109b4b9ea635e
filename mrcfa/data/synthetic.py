"""A synthetic video of drifting texture, for checks and benchmarks without files."""

import numpy as np
from numpy.typing import NDArray

from mrcfa.model.input_format import InputFormat

WAVES = 12


def built_in_clip(frames: int, size: tuple[int, int], form: InputFormat) -> NDArray[np.uint8]:
    """`drifting_clip` in the format of a bundle's frames."""
    return np.stack([form.from_rgb(image) for image in drifting_clip(frames, size)])


def drifting_clip(frames: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Plane waves of random colours that move a few pixels per frame: uint8 (frames, h, w, 3)."""
    rng = np.random.default_rng([0, *size])
    y, x = (axis.astype(np.float32) for axis in np.mgrid[: size[0], : size[1]])
    time = np.arange(frames, dtype=np.float32)[:, None, None]
    clip = np.zeros((frames, *size, 3), np.float32)
    for _ in range(WAVES):
        wave_y, wave_x = rng.uniform(0.01, 0.25, 2).astype(np.float32)
        speed, phase = rng.uniform(-0.5, 0.5), rng.uniform(0, 2 * np.pi)
        wave = np.sin(wave_y * y + wave_x * x + np.float32(speed) * time + np.float32(phase))
        clip += wave[..., None] * rng.uniform(-1, 1, 3).astype(np.float32)
    clip -= clip.min()
    return np.rint(clip * (255 / clip.max())).astype(np.uint8)
