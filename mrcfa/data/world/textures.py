"""What surfaces look like: noise, bricks, windows, foliage, all as float32 arrays around 1."""

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
    """Noise of several sizes, each half as large and half as strong as the one before."""
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        total += noise(random, height, width, max(1, cell >> octave)) / np.float32(2**octave)
    return total / np.float32(2)


def asphalt(random: Random, height: int, width: int) -> Floats:
    """Fine grain with darker patches."""
    grain = random.normal(0, 0.06, (height, width)).astype(np.float32)
    return 1 + grain + 0.12 * fractal(random, height, width, max(4, height // 3))


def bricks(random: Random, height: int, width: int, course: int) -> Floats:
    """Courses of bricks with joints; every brick has a tone of its own."""
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
    """Clumps of light and shadow."""
    return 1 + 0.45 * fractal(random, height, width, max(4, height // 5), octaves=4)


def clouds(random: Random, height: int, width: int) -> Floats:
    """Opacity (height, width)."""
    return np.clip(fractal(random, height, width, max(8, height // 2), 4) * 2 - 0.3, 0, 0.85)


def shade(colour: tuple[float, ...], texture: Floats) -> Floats:
    """A colour (3,) under a texture (h, w) -> (h, w, 3)."""
    return texture[..., None] * np.array(colour, np.float32)
