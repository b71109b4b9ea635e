"""Frames to normalised pixels in one kernel of compilers for GPUs, and in FP32 in every graph.

Mean and deviation rounded to FP16 are wrong by up to two ten-thousandths. All pixels then have the
same error, which no later sum averages out: it was larger than all other FP16 rounding.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from mrcfa.export.interpolation import Interpolation, Size, Taps, resizing
from mrcfa.export.precision import Wide
from mrcfa.model.frames import Normalise, NormaliseBgr, YuvToRgb
from mrcfa.model.input_format import InputFormat, Layout


class GatheredPixels(Wide, Normalise):
    """`Normalise` for frames of one size."""

    def __init__(self, frame: Size, size: Size) -> None:
        super().__init__(size)
        self.resize = nn.Identity() if frame == size else Interpolation(frame, size, axes=(1, 2))

    def forward(self, image: Tensor) -> Tensor:
        """The resize comes before the transpose, or TensorRT writes the whole frame in FP32."""
        pixels: Tensor = self.resize(image.to(self.mean.dtype)).permute(0, 3, 1, 2)
        return (pixels - self.mean) / self.std


class GatheredBgr(GatheredPixels, NormaliseBgr):
    """`GatheredPixels` for BGR."""

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image.to(self.mean.dtype).index_select(3, self.order))


class WideFormula(Wide, YuvToRgb):
    """`YuvToRgb` whose numbers stay FP32."""


class GatheredNv12(Wide, Normalise):
    """`Normalise` for NV12 frames of one size, with the pixels of `NormaliseNv12`.

    Y, U and V are gathered where the resize reads them and become RGB there, so that no frame of
    RGB is written. Conversion and gathering commute, because conversion works on single pixels.
    """

    def __init__(self, frame: Size, size: Size, form: InputFormat) -> None:
        super().__init__(size)
        self.formula = WideFormula(form)
        height, width = frame
        self.height = height
        self.rows = Taps(resizing((height, size[0])), axis=2)
        self.columns = Taps(resizing((width, size[1])), axis=3)

    def forward(self, image: Tensor) -> Tensor:
        values = image.to(self.mean.dtype)
        pixels = _sum(
            _sum(self._rgb(values, rows, columns) * weight for rows, weight in _taps(self.rows))
            * across
            for columns, across in _taps(self.columns)
        )
        return (pixels - self.mean) / self.std

    def _rgb(self, values: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """RGB (B, 3, H, W) of the pixels in these rows and columns of NV12 (B, h·3/2, w)."""
        even = columns // 2 * 2
        chroma = values.index_select(1, self.height + rows // 2)
        u, v = (chroma.index_select(2, even + place).unsqueeze(1) for place in (0, 1))
        luma = values.index_select(1, rows).index_select(2, columns).unsqueeze(1)
        return self.formula.rgb(luma, self.formula.colour(u, v))


def _sum(parts: Iterable[Tensor]) -> Tensor:
    first, *rest = parts
    return sum(rest, start=first)


def _taps(taps: Taps) -> Iterable[tuple[Tensor, Tensor]]:
    """The places and the weights of each tap."""
    return zip(taps.places, taps.weights, strict=True)


def gathered_pixels(frame: Size, size: Size, form: InputFormat) -> Normalise:
    """The module here for frames of this format."""
    if form.layout is Layout.NV12:
        return GatheredNv12(frame, size, form)
    return (GatheredBgr if form.layout is Layout.BGR else GatheredPixels)(frame, size)
