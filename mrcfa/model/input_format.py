"""`InputFormat`: how the pixels of a frame lie in memory, and the formula between NV12 and RGB.

The formula has integer weights in units of 2⁻¹⁴. All its sums are exact in FP32 in any order, so
every runtime that rounds and clips as `to_rgb` does gets the same bytes (docs/pipelines.md).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue, Mismatch

Image = NDArray[np.uint8]
Size = tuple[int, int]

UNIT = 1 << 14
"""The formula's weights are multiples of 1/UNIT. Its sums are below 2¹⁰, so 24 bits hold them."""
GREY = 128
"""The value of U and V of a pixel without colour."""
SD_LINES = 576
"""The most lines of standard definition. Players take BT.709 for larger pictures that name no
matrix, and BT.601 for others."""


class Layout(str, Enum):
    """The order of the bytes of a frame."""

    RGB = "rgb"
    BGR = "bgr"
    """The order of OpenCV."""
    NV12 = "nv12"
    """The layout of decoders and cameras: h rows of Y, then h/2 rows of U and V in turn."""


class Matrix(str, Enum):
    """The weights of red, green and blue in Y."""

    BT601 = "bt601"
    BT709 = "bt709"

    @property
    def red_and_blue(self) -> tuple[float, float]:
        return (0.299, 0.114) if self is Matrix.BT601 else (0.2126, 0.0722)

    @classmethod
    def usual(cls, lines: int) -> "Matrix":
        """The matrix of a picture that names none."""
        return cls.BT709 if lines > SD_LINES else cls.BT601


class Range(str, Enum):
    """The values of black and white."""

    LIMITED = "limited"
    """Y from 16 to 235; U and V from 16 to 240."""
    FULL = "full"

    @property
    def black(self) -> int:
        return 16 if self is Range.LIMITED else 0

    @property
    def steps(self) -> tuple[int, int]:
        """The steps from black to white, and those of U and V."""
        return (219, 224) if self is Range.LIMITED else (255, 255)


class RgbWeights(NamedTuple):
    """Weights of red, green and blue in units of 1/UNIT: `luma`·Y + `u`·U + `v`·V + `offset`.

    The offset has the half that makes rounding down round to the nearest.
    """

    luma: int
    u: tuple[int, int, int]
    v: tuple[int, int, int]
    offset: tuple[int, int, int]


@dataclass(frozen=True)
class InputFormat:
    """The format of a bundle's frames: the manifest's field `input`."""

    layout: Layout
    matrix: Matrix | None = None
    range: Range | None = None

    def __post_init__(self) -> None:
        needed = self.layout is Layout.NV12
        if (self.matrix is not None, self.range is not None) != (needed, needed):
            what = "needs a matrix and a range" if needed else "has no matrix and no range"
            raise InvalidValue(f"input {self.layout.value} {what}")

    @classmethod
    def usual(
        cls, layout: Layout, lines: int, matrix: Matrix | None = None, range: Range | None = None
    ) -> "InputFormat":
        """The format with the usual matrix for frames of so many lines, and limited range."""
        if layout is Layout.NV12:
            return cls(layout, matrix or Matrix.usual(lines), range or Range.LIMITED)
        return cls(layout, matrix, range)

    def __str__(self) -> str:
        """`NV12 (bt709, limited range)`."""
        if self.matrix is None or self.range is None:
            return self.layout.value.upper()
        return f"NV12 ({self.matrix.value}, {self.range.value} range)"

    def check(self, size: Size) -> None:
        """Refuse sizes that frames of this layout cannot have."""
        height, width = size
        if self.layout is Layout.NV12 and (height % 2 or width % 2):
            even = f"{height + height % 2}x{width + width % 2}"
            raise InvalidValue(
                f"a frame of {height}x{width} cannot be NV12, in which 2x2 pixels share a colour; "
                f"use even sides, such as {even}, or rgb"
            )

    def shape(self, size: Size) -> tuple[int, ...]:
        """The shape of a frame of this height and width."""
        height, width = size
        return (height * 3 // 2, width) if self.layout is Layout.NV12 else (height, width, 3)

    def size(self, shape: tuple[int, ...]) -> Size:
        """The height and width of a frame of this shape."""
        return (shape[0] * 2 // 3, shape[1]) if self.layout is Layout.NV12 else (shape[0], shape[1])

    def describes(self, array: Any) -> bool:
        """True if the array has a shape that frames of this layout have."""
        shape = tuple(array.shape)
        if self.layout is not Layout.NV12:
            return len(shape) == 3 and shape[2] == 3 and 0 not in shape
        return len(shape) == 2 and 0 not in shape and shape[0] % 3 == 0 and shape[1] % 2 == 0

    def to_rgb(self, frame: Image) -> Image:
        """The frame as RGB (h, w, 3)."""
        if self.layout is not Layout.NV12:
            return frame[..., ::-1] if self.layout is Layout.BGR else frame
        luma, chroma = planes(frame)
        return self._rgb_of(luma, self._colour_of(chroma).repeat(2, axis=0).repeat(2, axis=1))

    def sampled(self, frame: Image, step: int) -> Image:
        """One pixel in `step`, or in two steps of NV12, in both directions, as RGB."""
        if self.layout is not Layout.NV12:
            return self.to_rgb(frame[::step, ::step]).copy()
        luma, chroma = planes(frame)
        return self._rgb_of(luma[:: 2 * step, :: 2 * step], self._colour_of(chroma[::step, ::step]))

    def _colour_of(self, chroma: Image) -> NDArray[np.int32]:
        """U and V (h, w, 2) -> what they add to red, green and blue (h, w, 3)."""
        _, *rest = self.rgb_weights
        by_u, by_v, offset = np.array(rest, np.int32)
        u, v = chroma[..., :1].astype(np.int32), chroma[..., 1:].astype(np.int32)
        colour: NDArray[np.int32] = u * by_u + v * by_v + offset
        return colour

    def _rgb_of(self, luma: Image, colour: NDArray[np.int32]) -> Image:
        total = colour + (luma.astype(np.int32) * self.rgb_weights.luma)[..., None]
        total //= UNIT
        return total.clip(0, 255).astype(np.uint8)

    def from_rgb(self, image: Image) -> Image:
        """An RGB image (h, w, 3) as such a frame. U and V are those of the mean of 2×2 pixels."""
        if self.layout is not Layout.NV12:
            return image[..., ::-1] if self.layout is Layout.BGR else image
        if image.ndim != 3 or image.shape[2] != 3:
            raise Mismatch(f"an image is RGB (height, width, 3), not {image.shape}")
        height, width = image.shape[:2]
        self.check((height, width))
        frame = np.empty((height * 3 // 2, width), np.uint8)
        luma, chroma = planes(frame)
        y, *u_and_v = self._yuv_weights
        pixels = image.astype(np.int32)
        luma[...] = (pixels @ np.array(y, np.int32) + (self.black * UNIT + UNIT // 2)) // UNIT
        four = pixels.reshape(height // 2, 2, width // 2, 2, 3).sum(axis=(1, 3), dtype=np.int32)
        for place, weights in enumerate(u_and_v):
            total = four @ np.array(weights, np.int32) + (GREY * 4 * UNIT + 2 * UNIT)
            chroma[..., place] = (total // (4 * UNIT)).clip(0, 255)
        return frame

    @property
    def black(self) -> int:
        return 0 if self.range is None else self.range.black

    @property
    def rgb_weights(self) -> RgbWeights:
        assert self.matrix is not None
        assert self.range is not None
        red, blue = self.matrix.red_and_blue
        green = 1 - red - blue
        light, colour = (255 / steps * UNIT for steps in self.range.steps)
        luma = round(light)
        u = (0, -round(2 * colour * (1 - blue) * blue / green), round(2 * colour * (1 - blue)))
        v = (round(2 * colour * (1 - red)), -round(2 * colour * (1 - red) * red / green), 0)
        offset = (UNIT // 2 - luma * self.black - GREY * (u[c] + v[c]) for c in (0, 1, 2))
        return RgbWeights(luma, u, v, tuple(offset))  # type: ignore[arg-type]  # three of them

    @property
    def _yuv_weights(self) -> tuple[tuple[int, int, int], ...]:
        """Weights of red, green and blue in Y, U and V. U and V of grey are exact."""
        assert self.matrix is not None
        assert self.range is not None
        red, blue = self.matrix.red_and_blue
        light, colour = (steps / 255 * UNIT for steps in self.range.steps)
        y = _rounded((light * red, light * (1 - red - blue), light * blue), round(light))
        return y, *(
            _rounded(
                tuple(
                    colour * (own - share) / (2 * (1 - whole))
                    for own, share in zip(ones, (red, 1 - red - blue, blue), strict=True)
                ),
                0,
            )
            for ones, whole in (((0, 0, 1), blue), ((1, 0, 0), red))
        )


RGB = InputFormat(Layout.RGB)


def planes(frame: Image) -> tuple[Image, Image]:
    """Views of Y (h, w) and of U and V (h/2, w/2, 2) in an NV12 frame (h·3/2, w)."""
    lines, width = frame.shape
    height = lines * 2 // 3
    return frame[:height], frame[height:].reshape(height // 2, width // 2, 2)


def _rounded(weights: tuple[float, ...], total: int) -> tuple[int, int, int]:
    """Rounded weights of red, green and blue with this sum; green, the largest, takes the rest."""
    red, _, blue = (round(weight) for weight in weights)
    return red, total - red - blue, blue
