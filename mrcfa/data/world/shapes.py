"""A canvas for flat shapes, drawn at three times the size and shrunk: soft edges, exact masks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.world.textures import Floats

OVERSAMPLING = 3
NOTHING = 255
"""The class of transparent pixels."""


class Sprite:
    """An object ready to be pasted: colours (h, w, 3), opacity (h, w, 1) and classes (h, w)."""

    def __init__(self, colour: Floats, opacity: Floats, classes: NDArray[np.uint8]) -> None:
        self.colour, self.opacity, self.classes = np.clip(colour, 0, 255), opacity, classes
        self.height, self.width = classes.shape

    def mirrored(self) -> "Sprite":
        return Sprite(self.colour[:, ::-1], self.opacity[:, ::-1], self.classes[:, ::-1])

    def hazed(self, haze: Sequence[float], share: float) -> "Sprite":
        """The sprite blended with the colour of fog, by the given share."""
        colour = self.colour * (1 - share) + np.array(haze, np.float32) * share
        return Sprite(colour, self.opacity, self.classes)


class Canvas:
    """A canvas in units of its height: x from 0 to `aspect`, y from 0 (top) to 1."""

    def __init__(self, height: int, aspect: float) -> None:
        self._size = (max(2, height), max(2, round(height * aspect)))
        rows, columns = (side * OVERSAMPLING for side in self._size)
        self._y = ((np.arange(rows, dtype=np.float32) + 0.5) / rows)[:, None]
        self._x = (np.arange(columns, dtype=np.float32) + 0.5) / rows
        self._colour = np.zeros((rows, columns, 3), np.float32)
        self._classes = np.full((rows, columns), NOTHING, np.uint8)

    @property
    def shape(self) -> tuple[int, int]:
        return self._classes.shape[0], self._classes.shape[1]

    def box(self, left: float, top: float, right: float, bottom: float) -> NDArray[np.bool_]:
        inside = (self._x >= left) & (self._x < right)
        return inside & (self._y >= top) & (self._y < bottom)

    def ellipse(
        self, x: float, y: float, half_width: float, half_height: float
    ) -> NDArray[np.bool_]:
        return ((self._x - x) / half_width) ** 2 + ((self._y - y) / half_height) ** 2 < 1

    def slanted(
        self, top: tuple[float, float], bottom: tuple[float, float], y: tuple[float, float]
    ) -> NDArray[np.bool_]:
        """The mask of a trapezium between two rows; `top` and `bottom` are its (left, right)."""
        share = (self._y - y[0]) / (y[1] - y[0])
        left = top[0] + (bottom[0] - top[0]) * share
        right = top[1] + (bottom[1] - top[1]) * share
        return (share >= 0) & (share < 1) & (self._x >= left) & (self._x < right)

    def paint(
        self, where: NDArray[np.bool_], colour: Sequence[float] | Floats, label: int | None = None
    ) -> None:
        """Paint a colour (3,) or a picture (rows, columns, 3) where the mask is set.

        Without a label, only pixels that already have a class are painted.
        """
        if label is None:
            where = where & (self._classes != NOTHING)
        else:
            self._classes[where] = label
        values = np.asarray(colour, np.float32)
        self._colour[where] = values[where] if values.ndim == 3 else values

    def lit(self, side: float) -> None:
        """Make the top and one side brighter: the left for `side` −1, the right for 1."""
        across = (self._x / self._x[-1] - 0.5) * side
        self._colour *= (1.12 - 0.3 * self._y + 0.18 * across)[..., None]

    def sprite(self) -> Sprite:
        (height, width), n = self._size, OVERSAMPLING
        drawn = (self._classes != NOTHING).astype(np.float32)[..., None]
        cover = np.zeros((height, width, 1), np.float32)
        colour = np.zeros((height, width, 3), np.float32)
        for y in range(n):
            for x in range(n):
                cover += drawn[y::n, x::n]
                colour += self._colour[y::n, x::n]  # black where nothing is drawn
        colour /= np.maximum(cover, 1)
        cover /= n * n
        middle = self._classes.reshape(height, n, width, n)[:, n // 2, :, n // 2]
        return Sprite(colour, cover, middle.copy())
