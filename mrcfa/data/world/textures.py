"""Textures of surfaces, such as noise, bricks and leaves, as float32 factors around 1."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Random = np.random.Generator


def noise(random: Random, height: int, width: int, cell: int) -> Floats:
    """Smooth noise (height, width) in [−1, 1]: random values every `cell` pixels, interpolated."""
    rows, columns = height // cell + 2, width // cell + 2
    grid = random.uniform(-1, 1, (rows, columns)).astype(np.float32)
    y, x = (np.arange(length, dtype=np.float32) / np.float32(cell) for length in (height, width))
    top, left = y.astype(np.intp), x.astype(np.intp)
    down, across = (y - top.astype(np.float32))[:, None], x - left.astype(np.float32)
    upper = grid[top][:, left] * (1 - across) + grid[top][:, left + 1] * across
    lower = grid[top + 1][:, left] * (1 - across) + grid[top + 1][:, left + 1] * across
    return upper * (1 - down) + lower * down


def fractal(random: Random, height: int, width: int, cell: int, octaves: int = 3) -> Floats:
    """A sum of noise (height, width); each octave has half the cell size and half the strength."""
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        total += noise(random, height, width, max(1, cell >> octave)) / np.float32(2**octave)
    return total / np.float32(2)


def asphalt(random: Random, height: int, width: int) -> Floats:
    """A texture (height, width) of fine grain with darker patches."""
    grain = random.normal(0, 0.06, (height, width)).astype(np.float32)
    return 1 + grain + 0.12 * fractal(random, height, width, max(4, height // 3))


def bricks(random: Random, height: int, width: int, course: int) -> Floats:
    """A texture (height, width) of rows of bricks with joints; every brick has its own tone."""
    course = max(3, course)
    row = np.arange(height) // course
    shifted = np.arange(width)[None, :] + (row % 2 * course)[:, None]
    tones = random.uniform(0.82, 1.1, (row[-1] + 1, width // (2 * course) + 2)).astype(np.float32)
    wall = tones[row[:, None], shifted // (2 * course)]
    joints = (np.arange(height) % course == 0)[:, None] | (shifted % (2 * course) == 0)
    return np.where(joints, np.float32(0.78), wall)


def plaster(random: Random, height: int, width: int) -> Floats:
    return 1 + 0.06 * fractal(random, height, width, max(4, height // 4), octaves=4)


def leaves(random: Random, height: int, width: int) -> Floats:
    """A texture (height, width) of light and dark clumps."""
    return 1 + 0.45 * fractal(random, height, width, max(4, height // 5), octaves=4)


def clouds(random: Random, height: int, width: int) -> Floats:
    """Opacity (height, width) of clouds."""
    return np.clip(fractal(random, height, width, max(8, height // 2), 4) * 2 - 0.3, 0, 0.85)


def shade(colour: tuple[float, ...], texture: Floats) -> Floats:
    """Apply a texture (h, w) to a colour (3,): (h, w, 3)."""
    return texture[..., None] * np.array(colour, np.float32)
