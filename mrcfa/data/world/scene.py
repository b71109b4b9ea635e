"""A street scene: a camera pans, shakes and zooms past houses and moving objects."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.world.backdrop import ground, sky, skyline
from mrcfa.data.world.shapes import NOTHING, Sprite
from mrcfa.data.world.textures import Random
from mrcfa.data.world.things import bus, car, person, pole, tree
from mrcfa.data.world.weather import Image, Lens, weather

CUTS = 0.2
"""Share of the videos that cut to another street in the middle."""


def scene(frames: int, size: tuple[int, int], seed: int) -> Iterator[tuple[Image, Image]]:
    """Images (h, w, 3) and masks (h, w) of `WORLD`'s classes; equal seeds give equal pixels."""
    random = np.random.default_rng(seed)
    cut = int(random.integers(frames // 3, frames - frames // 3 + 1))
    lengths = (cut, frames - cut) if frames >= 12 and random.random() < CUTS else (frames,)
    for length in lengths:
        street = _Street(random, size, length)
        for t in range(length):
            yield street.frame(t)


@dataclass(frozen=True)
class _Thing:
    """An object in the scene: its pictures, position and speed."""

    pictures: list[Sprite]
    x: float
    """Position of its foot along the street, in frame heights at scale 1."""
    scale: float
    """Scale of the row on which it stands."""
    speed: float
    """Speed in frame heights per frame, at scale 1."""


class _Street:
    def __init__(self, random: Random, size: tuple[int, int], frames: int) -> None:
        self._random, (self._height, self._width) = random, size
        self._weather = weather(random)
        self._horizon = random.uniform(0.4, 0.5)
        self._path = self._camera(frames)
        self._sky = sky(random, self._weather, self._row(0.8), self._width)
        far = 0.2
        base = self._row(self._horizon + far * (1 - self._horizon))
        self._far, self._base = far, base
        self._pan = float(np.abs(self._path[:, 0]).max()) + 0.1
        self._extra = int(self._height * self._pan * far) + 2
        self._houses = skyline(random, self._weather, base, self._width + 2 * self._extra, base)
        rows = np.arange(base, self._height + 8, dtype=np.float32)
        scales = (rows / self._height - self._horizon) / (1 - self._horizon)
        self._scales = scales.astype(np.float32)
        self._reach = int(self._height * self._pan) + 2
        around = self._width + 2 * self._reach
        self._ground = ground(random, self._weather, self._scales, self._height, around)
        self._things = sorted(self._furniture(), key=lambda thing: thing.scale)
        self._lens = Lens(random, self._weather, size)

    def frame(self, t: int) -> tuple[Image, Image]:
        x, shake, zoom = self._path[t]
        picture = np.empty((self._height, self._width, 3), np.uint8)
        mask = np.empty((self._height, self._width), np.uint8)
        self._draw_backdrop(picture, mask, x)
        for thing in self._things:
            self._draw(thing, t, x, picture, mask)
        picture, mask = self._framed(picture, mask, shake, zoom)
        before = self._path[max(0, t - 1), 0]
        blur = int(abs(x - before) * self._height * 0.4)
        return self._lens(picture, min(blur, self._height // 40)), mask

    def _row(self, share: float) -> int:
        return round(share * self._height)

    def _camera(self, frames: int) -> NDArray[np.float64]:
        """The camera's path (frames, 3): x in frame heights, vertical shake in pixels, zoom."""
        random, t = self._random, np.arange(frames)
        pan = random.uniform(-0.03, 0.03) if random.random() < 0.75 else 0.0
        sway = random.uniform(0, 0.08) * np.sin(t * random.uniform(0.1, 0.4) + random.uniform(0, 6))
        jitter = random.uniform(0, 0.004) * self._height
        shake = np.rint(random.normal(0, jitter, frames)) if random.random() < 0.5 else 0 * t
        zooming = random.uniform(0, 0.25) if random.random() < 0.35 else 0.0
        zoom = 1 + zooming * (0.5 + 0.5 * np.sin(t * random.uniform(0.05, 0.2)))
        return np.stack([pan * (t - frames / 2) + sway, shake, zoom], axis=1)

    def _draw_backdrop(self, picture: Image, mask: Image, x: float) -> None:
        base = self._base
        colour, classes = self._sky
        picture[: len(colour)], mask[: len(classes)] = colour, classes
        left = self._extra + round(x * self._height * self._far)
        colour, classes = (part[:, left : left + self._width] for part in self._houses)
        there = classes != NOTHING
        np.copyto(picture[:base], colour, where=there[..., None])
        np.copyto(mask[:base], classes, where=there)
        shift = self._reach + np.rint(x * self._height * self._scales).astype(np.intp)
        rows = np.arange(len(self._scales))[: self._height - base, None]
        columns = shift[: self._height - base, None] + np.arange(self._width)
        colour, classes = self._ground
        picture[base:], mask[base:] = colour[rows, columns], classes[rows, columns]

    def _draw(self, thing: _Thing, t: int, x: float, picture: Image, mask: Image) -> None:
        sprite = thing.pictures[t % len(thing.pictures)]
        foot = self._row(self._horizon + thing.scale * (1 - self._horizon))
        centre = self._width / 2 + (thing.x + thing.speed * t - x) * self._height * thing.scale
        top, left = foot - sprite.height, round(centre - sprite.width / 2)
        rows = slice(max(0, top), min(self._height, foot))
        columns = slice(max(0, left), min(self._width, left + sprite.width))
        if rows.stop <= rows.start or columns.stop <= columns.start:
            return
        self._shadow(picture, foot, columns)
        part = (
            slice(rows.start - top, rows.stop - top),
            slice(columns.start - left, columns.stop - left),
        )
        opacity, classes = sprite.opacity[part], sprite.classes[part]
        under = picture[rows, columns]
        under[:] = under * (1 - opacity) + sprite.colour[part] * opacity
        np.copyto(mask[rows, columns], classes, where=classes != NOTHING)

    def _shadow(self, picture: Image, foot: int, columns: slice) -> None:
        if self._weather.night or self._weather.fog > 0.4:
            return
        depth = max(1, self._height // 90)
        rows = slice(max(0, foot - depth), min(self._height, foot + depth))
        picture[rows, columns] = picture[rows, columns] // 4 * 3

    def _framed(
        self, picture: Image, mask: Image, shake: float, zoom: float
    ) -> tuple[Image, Image]:
        """Shift the picture vertically and magnify its centre, by nearest neighbour."""
        if shake:
            rows = np.clip(np.arange(self._height) + int(shake), 0, self._height - 1)
            picture, mask = picture[rows], mask[rows]
        if zoom > 1.001:
            rows, columns = (
                ((np.arange(side) - side / 2) / zoom + side / 2).astype(np.intp)
                for side in (self._height, self._width)
            )
            picture, mask = picture[rows][:, columns], mask[rows][:, columns]
        return picture, mask

    def _furniture(self) -> Iterator[_Thing]:
        """The objects on the grass, on the pavements and on the road."""
        random, night = self._random, self._weather.night
        for _ in range(random.integers(2, 7)):
            picture = tree(random, self._pixels(1.5, 0.25))
            yield self._thing([picture], random.uniform(0.22, 0.3))
        for _ in range(random.integers(1, 5)):
            scale = random.uniform(*((0.3, 0.34) if random.random() < 0.6 else (0.9, 0.97)))
            tall = random.uniform(1.0, 1.3) * (1 if scale < 0.5 else 0.75)
            yield self._thing([pole(random, self._pixels(tall, scale), night)], scale)
        for _ in range(random.integers(1, 5)):
            scale = random.uniform(*((0.3, 0.34) if random.random() < 0.5 else (0.88, 0.97)))
            walk = person(random, self._pixels(0.52, scale))
            yield self._thing(walk, scale, random.uniform(-0.02, 0.02))
        for lane, direction in ((random.uniform(0.42, 0.5), -1), (random.uniform(0.66, 0.76), 1)):
            for _ in range(random.integers(1, 3)):
                large = random.random() < 0.3
                draw, tall = (bus, 0.72) if large else (car, random.uniform(0.34, 0.4))
                picture = draw(random, self._pixels(tall, lane), night)
                yield self._thing([picture], lane, direction * random.uniform(0.0, 0.07))

    def _pixels(self, tall: float, scale: float) -> int:
        return max(6, round(tall * scale * self._height))

    def _thing(self, pictures: list[Sprite], scale: float, speed: float = 0.0) -> _Thing:
        """An object at a random place; sprites face right, so one that moves left is mirrored."""
        if speed < 0:
            pictures = [picture.mirrored() for picture in pictures]
        share = self._weather.fog * max(0.0, 1 - 1.3 * scale)
        if share > 0.02:
            pictures = [picture.hazed(self._weather.haze, share) for picture in pictures]
        span = self._width / self._height / 2 / scale + self._pan
        return _Thing(pictures, self._random.uniform(-span, span), scale, speed)
