"""The static background of a scene: sky, houses, walls, and the ground in perspective."""

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.world.labels import BUILDING, GRASS, PAVEMENT, ROAD, SKY, TREE, WALL
from mrcfa.data.world.shapes import NOTHING
from mrcfa.data.world.textures import (
    Floats,
    Random,
    asphalt,
    bricks,
    clouds,
    fractal,
    leaves,
    noise,
    plaster,
    shade,
)
from mrcfa.data.world.weather import Weather

Picture = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Colours (h, w, 3) and classes (h, w) of a part of the scene."""
FACADES = (
    (172, 110, 88), (196, 178, 150), (150, 150, 152), (120, 92, 80), (206, 196, 180),
    (98, 104, 116),
)  # fmt: skip
CONCRETE = (128.0, 128.0, 130.0)


def sky(random: Random, conditions: Weather, height: int, width: int) -> Picture:
    """The sky: a vertical gradient that ends in the colour of the haze, with clouds."""
    zenith = (8, 10, 24) if conditions.night else (96, 146, 210)
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None, None] ** 0.7
    colour = (1 - down) * np.array(zenith, np.float32) + down * np.array(
        conditions.haze, np.float32
    )
    cover = clouds(random, height, width)[..., None] * (0.25 if conditions.night else 0.9)
    white = np.array(conditions.haze, np.float32) * 1.08
    colour = colour * (1 - cover) + white * cover
    return _picture(colour), np.full((height, width), SKY, np.uint8)


def skyline(random: Random, conditions: Weather, height: int, width: int, base: int) -> Picture:
    """Houses and woods side by side down to row `base`, with a few walls in front of them."""
    colour = np.zeros((height, width, 3), np.float32)
    classes = np.full((height, width), NOTHING, np.uint8)
    left = -int(random.integers(40))
    while left < width:
        across = int(height * random.uniform(0.35, 0.9))
        columns = slice(max(0, left), min(width, left + across))
        if columns.stop > columns.start:
            if random.random() < 0.22:
                _woods(random, colour, classes, columns, base)
            else:
                _house(random, conditions, colour, classes, columns, base)
        left += across + int(random.integers(0, max(2, height // 6)))
    share = conditions.fog * 0.7
    colour = colour * (1 - share) + np.array(conditions.haze, np.float32) * share
    _walls(random, colour, classes, base)
    return _picture(colour), classes


def _house(
    random: Random,
    conditions: Weather,
    colour: Floats,
    classes: NDArray[np.uint8],
    columns: slice,
    base: int,
) -> None:
    top = int(base * random.uniform(0.02, 0.55))
    height, width = base - top, columns.stop - columns.start
    paint = tuple(
        random.uniform(0.85, 1.1) * level for level in FACADES[random.integers(len(FACADES))]
    )
    if random.random() < 0.4:
        front = shade(paint, bricks(random, height, width, max(3, base // 60)))
    else:
        front = shade(paint, plaster(random, height, width))
    front *= np.linspace(1.08, 0.88, height, dtype=np.float32)[:, None, None]
    storey = max(8, int(base * random.uniform(0.1, 0.15)))
    pane_height, pane_width = int(storey * 0.55), max(3, int(storey * random.uniform(0.35, 0.6)))
    for y in range(storey // 3, height - pane_height, storey):
        for x in range(pane_width // 2, width - pane_width, int(pane_width * 1.9)):
            lit = random.random() < (0.4 if conditions.night else 0.06)
            pane = (250, 214, 130) if lit else (52, 62, 78)
            front[y : y + pane_height, x : x + pane_width] = pane
            front[y : y + 1 + storey // 14, x : x + pane_width] *= 0.6
    front[: max(1, storey // 8)] *= 0.7
    colour[top:base, columns] = front
    classes[top:base, columns] = BUILDING


def _woods(
    random: Random, colour: Floats, classes: NDArray[np.uint8], columns: slice, base: int
) -> None:
    width = columns.stop - columns.start
    edge = base * (0.55 + 0.16 * noise(random, 1, width, max(4, width // 6))[0])
    covered = np.arange(base)[:, None] >= edge
    green = np.clip(shade((62, 92, 50), leaves(random, base, width)), 0, 255)
    colour[:base, columns][covered] = green[covered]
    classes[:base, columns][covered] = TREE


def _walls(random: Random, colour: Floats, classes: NDArray[np.uint8], base: int) -> None:
    """Draw walls of concrete, which looks like the road, or of bricks, which look like houses."""
    width = classes.shape[1]
    left = int(random.integers(width // 3))
    while left < width:
        across = int(random.integers(base // 2, base * 2))
        height = int(base * random.uniform(0.12, 0.2))
        columns = slice(left, min(width, left + across))
        size = (height, columns.stop - columns.start)
        if random.random() < 0.6:
            front = shade(CONCRETE, asphalt(random, *size))
        else:
            front = shade((150, 100, 84), bricks(random, *size, max(3, base // 50)))
        front[: max(1, height // 12)] *= 1.15
        colour[base - height : base, columns] = front
        classes[base - height : base, columns] = WALL
        left += across + int(random.integers(base // 3, base * 2))


def ground(random: Random, conditions: Weather, scales: Floats, height: int, width: int) -> Picture:
    """The ground in perspective; `scales` has the size of each row relative to the lowest one.

    From far to near it has grass or pavement with side streets, the road with its markings, and
    grass or pavement again. Distances along x are in frame heights at scale 1.
    """
    rows = len(scales)
    x = np.arange(width, dtype=np.float32)[None, :] / (height * scales[:, None])
    depth = np.broadcast_to(scales[:, None], (rows, width))
    far, near = random.uniform(0.3, 0.36), random.uniform(0.86, 0.94)
    classes = np.full((rows, width), ROAD, np.uint8)
    strip = GRASS if random.random() < 0.5 else PAVEMENT
    phase, period = random.uniform(0, 20), random.uniform(6, 11)
    side_street = np.mod(x + phase, period) < random.uniform(1.2, 2.2)
    classes[(depth < far) & ~side_street] = strip
    classes[(depth >= far - 0.045) & (depth < far) & ~side_street] = PAVEMENT
    classes[depth >= near] = GRASS if random.random() < 0.3 else PAVEMENT
    colour = np.empty((rows, width, 3), np.float32)
    grain = asphalt(random, rows, width)
    wet = 0.8 if conditions.rain else 1.0
    colour[:] = shade(tuple(wet * level for level in (98, 98, 102)), grain)
    slabs = 1 + 0.05 * fractal(random, rows, width, 24)
    slabs = slabs * np.where(np.mod(x + phase, 0.45) < 0.02, np.float32(0.8), np.float32(1))
    lawn = shade((86, 128, 58), leaves(random, rows, width))
    snowy = shade((226, 228, 232), 1 + 0.05 * fractal(random, rows, width, 30))
    paved = shade((158, 152, 146), slabs)
    if conditions.snow:
        lawn, paved = snowy, 0.5 * paved + 0.5 * snowy
    for label, material in ((GRASS, lawn), (PAVEMENT, paved)):
        colour[classes == label] = material[classes == label]
    middle = (far + near) / 2
    dash = (np.abs(depth - middle) < 0.012) & (np.mod(x, 1.1) < 0.6)
    crossing = np.mod(x + phase + 3, period * 1.7) < 1.3
    zebra = crossing & (np.mod(depth, 0.09) < 0.045) & (depth > far + 0.03) & (depth < near - 0.03)
    marked = (classes == ROAD) & (dash | zebra)
    colour[marked] = np.float32(215) * grain[marked][:, None]
    kerb = (np.abs(depth - far) < 0.006) | (np.abs(depth - near) < 0.008)
    colour[kerb & (classes != ROAD)] *= 0.75
    share = (conditions.fog * np.clip(1.1 - depth * 1.6, 0, 1))[..., None]
    colour = colour * (1 - share) + np.array(conditions.haze, np.float32) * share
    return _picture(colour), classes


def _picture(colour: NDArray[np.floating]) -> NDArray[np.uint8]:
    return np.clip(colour, 0, 255).astype(np.uint8)
