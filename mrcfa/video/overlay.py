"""What a mask looks like: over the frame, in colours, or as it is, with a legend of its classes."""

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue, named
from mrcfa.machine.extras import load
from mrcfa.video.sinks import BLANK, Picture
from mrcfa.video.style import Style

Image = NDArray[np.uint8]

LEGEND_SHARE = 0.005
"""A class enters the legend with this share of the pixels; fewer would make it flicker."""

_BACKGROUND = 24


class Renderer:
    """Pictures of one style: `renderer(image, mask)`, (h, w, 3) and (h, w) in.

    Colours are looked up in tables of 256 entries, one for each value of a mask, so that classes
    that are not wanted cost nothing: their tint is zero and the frame keeps its full weight.
    """

    def __init__(
        self,
        style: Style,
        classes: Sequence[str],
        palette: NDArray[np.uint8],
        alpha: float = 0.5,
        only: Sequence[str] = (),
        legend: bool = True,
    ) -> None:
        """`only` names the classes that are shown, `alpha` how strongly they cover the frame.

        The legend lies in a corner of an overlay, and beside a picture of the colours alone.
        """
        wanted = [class_index(name, classes) for name in only] or list(range(len(classes)))
        opacity = round(256 * (1 if style is Style.COLOR else alpha))
        self._style = style
        self._classes = classes
        self._palette = palette
        self._wanted = np.zeros(256, np.bool_)
        self._wanted[wanted] = True
        self._label = np.where(self._wanted, np.arange(256), BLANK).astype(np.uint8)
        self._tint = np.zeros((256, 3), np.uint16)
        self._tint[wanted] = palette[wanted].astype(np.uint16) * opacity
        self._weight = np.full((256, 3), 0 if style is Style.COLOR else 256, np.uint16)
        self._weight[wanted] = 256 - opacity
        self._legend = legend
        self._strips: dict[tuple[int, int], Image] = {}

    def __call__(self, image: Image, mask: NDArray[np.uint8]) -> Picture:
        if self._style is Style.MASK:
            return self._label.take(mask)
        blend = self._tint.take(mask, axis=0)
        blend += image * self._weight.take(mask, axis=0)
        blend >>= 8
        picture = blend.astype(np.uint8)
        if self._legend and self._style is Style.COLOR:
            return np.concatenate([picture, self._panel(mask)], axis=1)
        if self._legend:
            self._draw_legend(picture, mask, picture.shape[0] // 2)
        if self._style is Style.SIDE_BY_SIDE:
            return np.concatenate([image, picture], axis=1)
        return picture

    def _panel(self, mask: NDArray[np.uint8]) -> Image:
        """A legend as high as the mask, and always as wide as the longest name needs."""
        rows = mask.shape[0]
        strips = [self._strip(int(k), _strip_height(rows)) for k in self._wanted.nonzero()[0]]
        width = max(strip.shape[1] for strip in strips)
        panel = np.full((rows, width, 3), _BACKGROUND, np.uint8)
        self._draw_legend(panel, mask, rows)
        return panel

    def _draw_legend(self, picture: Image, mask: NDArray[np.uint8], most: int) -> None:
        """One strip for each class that is present, the largest on top, in the lower left.

        All of them are at most `most` pixels high.
        """
        counts = np.bincount(mask.ravel(), minlength=256) * self._wanted
        height = _strip_height(mask.shape[0])
        rows = most // height
        present = [int(k) for k in counts.argsort()[::-1] if counts[k] >= LEGEND_SHARE * mask.size]
        top = picture.shape[0] - height * min(rows, len(present))
        for index in present[:rows]:
            strip = self._strip(index, height)[:, : picture.shape[1]]
            picture[top : top + height, : strip.shape[1]] = strip
            top += height

    def _strip(self, index: int, height: int) -> Image:
        """A swatch and the name of a class, (height, w, 3); drawn once."""
        if (index, height) not in self._strips:
            pillow, draw = load("PIL.Image"), load("PIL.ImageDraw")
            font = load("PIL.ImageFont").load_default(height * 0.75)
            name = self._classes[index].replace("_", " ")
            width = int(font.getlength(name)) + 2 * height
            strip = pillow.new("RGB", (width, height), (_BACKGROUND,) * 3)
            pen = draw.Draw(strip)
            swatch = (2, 2, height - 3, height - 3)
            pen.rectangle(swatch, fill=tuple(int(level) for level in self._palette[index]))
            pen.text((height * 1.25, height / 2), name, "white", font, anchor="lm")
            self._strips[index, height] = np.asarray(strip)
        return self._strips[index, height]


def _strip_height(rows: int) -> int:
    """Of a picture so many pixels high."""
    return max(10, rows // 30)


def class_index(name: str, classes: Sequence[str]) -> int:
    """The class of this name, in whatever case; the nearest names if there is none."""
    known = {each.lower().replace(" ", "_"): index for index, each in enumerate(classes)}
    asked = name.strip().lower().replace(" ", "_")
    if asked in known:
        return known[asked]
    near = get_close_matches(asked, known, n=3, cutoff=0.5)
    near += [each for each in known if asked in each and each not in near]
    hint = f"did you mean {named(near, most=5)}" if near else f"there are {named(known, most=20)}"
    raise InvalidValue(f"no class is called {name!r}; {hint}")
