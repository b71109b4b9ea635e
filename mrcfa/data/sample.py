"""A made-up dataset in VSPW's layout: moving shapes with exact masks, to try everything at once.

Every scene has a camera that pans, things that move on their own, one that passes in front of them,
and a patch without ground truth. The same seed gives the same pixels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.vspw import VSPW
from mrcfa.extras import load
from mrcfa.files import replaced
from mrcfa.video.sinks import open_sink

RATE = Fraction(15)
"""Frames per second, as in VSPW."""

Image = NDArray[np.uint8]
Region = NDArray[np.bool_]


def write_sample(
    folder: Path,
    videos: int = 3,
    frames: int = 24,
    size: tuple[int, int] = (480, 864),
    seed: int = 0,
) -> None:
    """`data/<video>/origin` and `mask`, `val.txt`, and the first video again as `street.mp4`."""
    pillow = load("PIL.Image")
    names = [f"sample_{number}" for number in range(videos)]
    with replaced(folder, folder=True) as part:
        for number, name in enumerate(names):
            for kind in ("origin", "mask"):
                (part / "data" / name / kind).mkdir(parents=True)
            for t, (image, mask) in enumerate(scene(frames, size, seed + number)):
                stem = part / "data" / name
                pillow.fromarray(image).save(stem / "origin" / f"{t:08d}.jpg", quality=95)
                pillow.fromarray(mask).save(stem / "mask" / f"{t:08d}.png")
        (part / "val.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        nothing = np.zeros((0, 3), np.uint8)
        with open_sink(str(part / "street.mp4"), (), nothing, RATE) as write:
            for t, (image, _) in enumerate(scene(frames, size, seed)):
                write(f"{t:06d}", image)


def scene(frames: int, size: tuple[int, int], seed: int) -> Iterator[tuple[Image, Image]]:
    """Images (h, w, 3) and VSPW masks (h, w): 0 has no ground truth, v is class v−1."""
    random = np.random.default_rng(seed)
    height, width = size
    things = _things(random)
    pan = random.uniform(-0.012, 0.012)
    hills = random.uniform(0, 6, 2)
    grain = random.normal(0, 7, (height, 2 * width)).astype(np.float32)
    colours = np.zeros((256, 3), np.float32)
    for label, colour in _COLOUR.items():
        colours[_value(label)] = colour
    y, x = (np.mgrid[0:height, 0:width] / height).astype(np.float32)
    for t in range(frames):
        shift = pan * t
        world = x + shift
        ridge = 0.38 + 0.05 * np.sin(3 * world + hills[0]) + 0.03 * np.sin(7 * world + hills[1])
        layers: list[tuple[str | None, Region]] = [
            ("sky", y >= 0),
            ("mountain", y >= ridge),
            ("grass", y >= 0.52 + 0.01 * np.sin(9 * world)),
            ("road", y >= 0.66),
            ("path", y >= 0.93),
        ]
        layers += [(thing.label, thing.covers(world, y, t)) for thing in things]
        mask = np.zeros(size, np.uint8)
        for label, region in layers:
            mask[region] = _value(label)
        image = colours[mask] * (1.1 - 0.25 * y)[..., None]
        image += np.roll(grain, -round(shift * height), axis=1)[:, :width, None]
        yield image.clip(0, 255).astype(np.uint8), mask


def _value(label: str | None) -> int:
    return 0 if label is None else VSPW.labels.values[VSPW.labels.names.index(label)]


@dataclass(frozen=True)
class Thing:
    """A box or an ellipse; lengths are in heights of the frame, `speed` per frame."""

    label: str | None
    shape: Literal["box", "ellipse"]
    x: float
    y: float
    half_width: float
    half_height: float
    speed: float = 0

    def covers(self, x: NDArray[np.float32], y: NDArray[np.float32], t: int) -> Region:
        across = (x - (self.x + self.speed * t)) / self.half_width
        down = (y - self.y) / self.half_height
        if self.shape == "box":
            return np.maximum(np.abs(across), np.abs(down)) < 1
        return across**2 + down**2 < 1


def _things(random: np.random.Generator) -> list[Thing]:
    """From the back to the front; the pole hides what passes behind it."""
    houses = [
        Thing("building", "box", at, 0.4, random.uniform(0.06, 0.14), random.uniform(0.1, 0.2))
        for at in (np.arange(-0.4, 2.6, 0.6) + random.uniform(0, 0.3)).tolist()
    ]
    trees = [
        part
        for at in random.uniform(-0.2, 2, 3).tolist()
        for part in (
            Thing("tree", "box", at, 0.58, 0.012, 0.09),
            Thing("tree", "ellipse", at, 0.44, 0.08, 0.11),
        )
    ]
    bus = random.uniform(0.2, 0.6)
    car, car_speed = random.uniform(0.9, 1.4), -random.uniform(0.015, 0.03)
    walker = random.uniform(0.4, 1.2)
    return [
        Thing(None, "ellipse", random.uniform(0.2, 1.5), 0.12, 0.12, 0.04, 0.004),
        *houses,
        *trees,
        Thing("bus", "box", bus, 0.62, 0.24, 0.12, random.uniform(0.01, 0.02)),
        Thing("car", "box", car, 0.78, 0.15, 0.05, car_speed),
        Thing("car", "ellipse", car, 0.74, 0.09, 0.07, car_speed),
        Thing("person", "box", walker, 0.9, 0.025, 0.08, 0.006),
        Thing("person", "ellipse", walker, 0.79, 0.028, 0.035, 0.006),
        Thing("pole", "box", random.uniform(0.6, 1), 0.6, 0.018, 0.4),
    ]


_COLOUR: dict[str | None, tuple[int, int, int]] = {
    None: (235, 235, 240),
    "sky": (130, 180, 235),
    "mountain": (120, 125, 140),
    "grass": (95, 150, 70),
    "road": (90, 90, 95),
    "path": (170, 150, 125),
    "building": (190, 120, 95),
    "tree": (45, 100, 50),
    "bus": (225, 180, 40),
    "car": (190, 40, 45),
    "person": (60, 60, 160),
    "pole": (60, 60, 60),
}
