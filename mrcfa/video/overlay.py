"""Rendering of masks: over the frame, in colours, or unchanged, with a legend of the classes."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue, named
from mrcfa.machine.extras import load
from mrcfa.model.input_format import RGB, InputFormat, Layout, planes
from mrcfa.video.sinks import BLANK, Nv12Picture, Picture
from mrcfa.video.style import Style

Image = NDArray[np.uint8]

LEGEND_SHARE = 0.005
"""Smallest share of pixels of a class in the legend; a lower one would make the legend flicker."""

_BACKGROUND = 24


class Renderer:
    """A renderer of one style; call it with an image (h, w, 3) and its mask (h, w).

    Colours and weights are tables of 256 entries, one per value of a mask. Hidden classes have a
    tint of zero and leave the frame its full weight, so they need no extra work. An image may also
    be NV12 of the format `form`; what is painted over it is NV12 as well.
    """

    def __init__(
        self,
        style: Style,
        classes: Sequence[str],
        palette: NDArray[np.uint8],
        alpha: float = 0.5,
        only: Sequence[str] = (),
        legend: bool = True,
        form: InputFormat = RGB,
    ) -> None:
        """Prepare the tables; `only` names the visible classes, `alpha` is their opacity.

        The legend is in a corner of an overlay, and beside a picture in the style COLOR.
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
        self._form = form
        if form.layout is Layout.NV12:
            self._levels = self._nv12_levels(opacity)

    def __call__(self, image: Image, mask: NDArray[np.uint8]) -> Picture:
        if self._style is Style.MASK:
            return self._label.take(mask)
        if image.ndim == 2 and self._style is not Style.COLOR:
            return Nv12Picture(self._painted_nv12(image, mask), self._form)
        blend = self._tint.take(mask, axis=0)
        if self._style is not Style.COLOR:
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

    def _painted_nv12(self, image: Image, mask: NDArray[np.uint8]) -> Image:
        """The overlay; U and V of 2×2 pixels take the class of the first of them."""
        picture = np.empty_like(image)
        (y, chroma), (new_y, new_chroma) = planes(image), planes(picture)
        first = mask[::2, ::2]
        by_y, by_u, by_v = self._levels
        new_y[...] = by_y[mask, y]
        new_chroma[..., 0] = by_u[first, chroma[..., 0]]
        new_chroma[..., 1] = by_v[first, chroma[..., 1]]
        if self._legend:
            rows, columns = mask.shape
            for top, strip in self._legend_of(mask, rows, rows // 2, even=True):
                name = self._form.from_rgb(strip[:, : min(columns, strip.shape[1] // 2 * 2)])
                for target, part, start in zip(
                    planes(picture), planes(name), (top, top // 2), strict=True
                ):
                    target[start : start + part.shape[0], : part.shape[1]] = part
        if self._style is Style.SIDE_BY_SIDE:
            return np.concatenate([image, picture], axis=1)
        return picture

    def _nv12_levels(self, opacity: int) -> NDArray[np.uint8]:
        """Tables of Y, U and V: (3, class, level before) -> level after."""
        squares = np.broadcast_to(self._palette[:, None, None], (len(self._palette), 2, 2, 3))
        colours = np.array(
            [self._form.from_rgb(square)[[0, 2, 2], [0, 0, 1]] for square in squares]
        )
        before = np.arange(256, dtype=np.uint16)
        after = np.broadcast_to(before, (3, 256, 256)).copy()
        for index in self._wanted.nonzero()[0]:
            tint = colours[index].astype(np.uint16) * opacity
            after[:, index] = (before * np.uint16(256 - opacity) + tint[:, None]) >> 8
        return after.astype(np.uint8)

    def _panel(self, mask: NDArray[np.uint8]) -> Image:
        """A legend as high as the mask and as wide as the longest class name."""
        rows = mask.shape[0]
        strips = [self._strip(int(k), _strip_height(rows)) for k in self._wanted.nonzero()[0]]
        width = max(strip.shape[1] for strip in strips)
        panel = np.full((rows, width, 3), _BACKGROUND, np.uint8)
        self._draw_legend(panel, mask, rows)
        return panel

    def _draw_legend(self, picture: Image, mask: NDArray[np.uint8], room: int) -> None:
        """Draw a strip for each visible class in the lower left corner."""
        for top, strip in self._legend_of(mask, picture.shape[0], room):
            shown = strip[:, : picture.shape[1]]
            picture[top : top + shown.shape[0], : shown.shape[1]] = shown

    def _legend_of(
        self, mask: NDArray[np.uint8], bottom: int, room: int, even: bool = False
    ) -> Iterator[tuple[int, Image]]:
        """The first row and the strip of each visible class, the largest class on top.

        The strips together are at most `room` pixels high. `even` makes the rows' numbers even.
        """
        counts = np.bincount(mask.ravel(), minlength=256) * self._wanted
        height = _strip_height(mask.shape[0])
        height -= height % 2 if even else 0
        rows = room // height
        present = [int(k) for k in counts.argsort()[::-1] if counts[k] >= LEGEND_SHARE * mask.size]
        top = bottom - height * min(rows, len(present))
        for index in present[:rows]:
            yield top, self._strip(index, height)
            top += height

    def _strip(self, index: int, height: int) -> Image:
        """The colour and name of a class as a strip (height, w, 3), drawn on first use."""
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
    """Height of a legend strip for a picture of this many rows."""
    return max(10, rows // 30)


def class_index(name: str, classes: Sequence[str]) -> int:
    """The index of a class by its name, ignoring case; an error suggests similar names."""
    known = {known.lower().replace(" ", "_"): index for index, known in enumerate(classes)}
    wanted = name.strip().lower().replace(" ", "_")
    if wanted in known:
        return known[wanted]
    near = get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [other for other in known if wanted in other and other not in near]
    hint = f"did you mean {named(near, most=5)}" if near else f"there are {named(known, most=20)}"
    raise InvalidValue(f"no class is called {name!r}; {hint}")
