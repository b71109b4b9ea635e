"""`upright`: the pixels of a decoded frame as RGB or NV12, turned as the recording says."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.machine.extras import load
from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range, planes

Image = NDArray[np.uint8]

_MATRICES = {1: Matrix.BT709, 6: Matrix.BT601, 5: Matrix.BT601}
"""FFmpeg's numbers; 5 and 6 are the same matrix."""
_RANGES = {1: Range.LIMITED, 2: Range.FULL}
_NO_MATRIX = (0, 2)
"""FFmpeg's numbers for RGB and for a matrix that is not named, which is taken to be the format's.
So is a range that is not named."""


def upright(frame: Any, form: InputFormat) -> tuple[Image, InputFormat]:
    """The frame as NV12 if that is the format and its sides are even, else as RGB."""
    turns = round(frame.rotation / 90)
    if form.layout is not Layout.NV12 or frame.width % 2 or frame.height % 2:
        image = frame.to_ndarray(format="rgb24")
        return np.ascontiguousarray(np.rot90(image, turns)), RGB
    image = _nv12(frame, form)
    if turns % 4 == 0:
        return image, form
    parts = [np.rot90(part, turns) for part in planes(image)]
    turned = np.empty(form.shape(parts[0].shape[:2]), np.uint8)
    for target, part in zip(planes(turned), parts, strict=True):
        target[...] = part
    return turned, form


def as_rgb(image: Image, form: InputFormat) -> Image:
    """Pixels as RGB for the eye: FFmpeg's formula, which is much faster than `to_rgb`."""
    if form.layout is not Layout.NV12:
        return form.to_rgb(image)
    frame = load("av").VideoFrame.from_ndarray(image, format="nv12")
    frame.colorspace, frame.color_range = numbers_of(form)
    found: Image = frame.to_ndarray(format="rgb24")
    return found


def numbers_of(form: InputFormat) -> tuple[int, int]:
    """FFmpeg's numbers of the matrix and the range of NV12."""
    matrix = next(number for number, each in _MATRICES.items() if each is form.matrix)
    return matrix, next(number for number, each in _RANGES.items() if each is form.range)


def _nv12(frame: Any, form: InputFormat) -> Image:
    """NV12 of this format. FFmpeg converts frames that name another matrix or range."""
    matrix, levels = numbers_of(form)
    found = int(frame.colorspace), _levels(frame)
    frame = frame.reformat(
        format="nv12",
        src_colorspace=matrix if found[0] in _NO_MATRIX else found[0],
        dst_colorspace=matrix,
        src_color_range=found[1] or levels,
        dst_color_range=levels,
        threads=1,  # more would be started anew for each frame
    )
    image = np.empty(form.shape((frame.height, frame.width)), np.uint8)
    luma, chroma = planes(image)
    luma[...] = _plane(frame, 0)
    chroma[...] = _plane(frame, 1).reshape(chroma.shape)
    return image


def _levels(frame: Any) -> int:
    """FFmpeg's number of the range; old names of formats imply a full one."""
    return 2 if frame.format.name.startswith("yuvj") else int(frame.color_range)


def _plane(frame: Any, number: int) -> Image:
    """A view of the bytes of a plane of NV12, without the padding of its rows."""
    plane = frame.planes[number]
    rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : frame.width]
