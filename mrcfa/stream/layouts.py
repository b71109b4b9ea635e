"""`as_frame`: checks that a frame is in a bundle's format; an error shows what converts it."""

from typing import Any

import numpy as np

from mrcfa.errors import InvalidValue
from mrcfa.model.input_format import Image, InputFormat, Layout, Size
from mrcfa.stream.rgb import as_rgb


def as_frame(frame: Any, form: InputFormat, size: Size) -> Image:
    """The frame, if it is in this format; `size` is that of the bundle's frames."""
    if form.layout is Layout.NV12:
        return _as_nv12(frame, form, size)
    if form.layout is Layout.BGR and isinstance(getattr(frame, "mode", None), str):
        raise InvalidValue(
            "the bundle takes BGR frames, and a Pillow image is RGB; pass "
            "stream.input.from_rgb(np.asarray(frame.convert('RGB')))"
        )
    nv12 = (size[0] * 3 // 2, size[1])
    if tuple(getattr(frame, "shape", ())) == nv12:
        raise InvalidValue(
            f"a frame of shape {nv12} is NV12, and the bundle takes {form}; export it with "
            "--input nv12"
        )
    return as_rgb(frame)


def _as_nv12(frame: Any, form: InputFormat, size: Size) -> Image:
    takes = f"the bundle takes NV12 frames, uint8 (h·3/2, w) such as {form.shape(size)}"
    other = "open the stream with convert_rgb=True to pass RGB frames"
    if not hasattr(frame, "__array__") or not hasattr(frame, "shape"):
        raise InvalidValue(f"{takes}, not {type(frame).__name__}; {other}")
    kind, shape = str(frame.dtype).rpartition(".")[2], tuple(frame.shape)
    if kind != "uint8" or not form.describes(frame):
        if kind == "uint8" and len(shape) == 3 and shape[2] == 3:
            other = f"pass stream.input.from_rgb(frame), or {other}"
        raise InvalidValue(f"{takes}, not {kind} {shape}; {other}")
    try:
        return np.asarray(frame)
    except (TypeError, RuntimeError):
        raise InvalidValue(f"this frame is a tensor on {frame.device}; pass frame.cpu()") from None
