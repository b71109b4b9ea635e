"""`as_rgb`: checks that a frame is uint8 RGB; an error shows the code that converts it."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue

Image = NDArray[np.uint8]


class Picture(Protocol):
    """A Pillow image."""

    @property
    def mode(self) -> str: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class Tensor(Protocol):
    """A tensor in host memory, such as one of PyTorch."""

    def __array__(self) -> NDArray[Any]: ...


def as_rgb(frame: Any) -> Image:
    """The frame as uint8 (h, w, 3), if it is such an array or tensor, or an RGB Pillow image."""
    if not hasattr(frame, "__array__") and not hasattr(frame, "__array_interface__"):
        raise InvalidValue(
            "a frame is an array, a Pillow image in mode RGB or a tensor on the CPU, "
            f"not {type(frame).__name__}; read a file with PIL.Image.open(path).convert('RGB')"
        )
    mode = getattr(frame, "mode", None)  # a method of PyTorch's tensors
    if isinstance(mode, str) and mode != "RGB" and mode[0] not in "IF":  # which Pillow would clip
        raise InvalidValue(
            f"a frame is RGB and this image has mode {mode}; pass frame.convert('RGB')"
        )
    name, array = "frame", frame
    if not isinstance(frame, np.ndarray) and not hasattr(frame, "permute"):
        name, array = "np.asarray(frame)", np.asarray(frame)
    if _kind(array) != "uint8" or not _is_rgb(array):
        raise _refusal(name, array)
    try:
        return np.asarray(array)
    except (TypeError, RuntimeError):
        raise InvalidValue(f"this frame is a tensor on {frame.device}; pass frame.cpu()") from None


def _kind(array: Any) -> str:
    """The name of the type, such as `uint8`, of a NumPy array or a PyTorch tensor."""
    return str(array.dtype).rpartition(".")[2]


def _is_rgb(array: Any) -> bool:
    return len(array.shape) == 3 and array.shape[2] == 3 and 0 not in array.shape


def _refusal(name: str, array: Any) -> InvalidValue:
    found = f"a frame is uint8 (height, width, 3), not {_kind(array)} {tuple(array.shape)}"
    text, shaped = _channels_last(name, array)
    if not _is_rgb(shaped) or not _kind(array).startswith(("bool", "uint", "int", "float", "bfl")):
        return InvalidValue(f"{found}; pass one RGB frame at a time")
    low, high = float(shaped.min()), float(shaped.max())
    remedy = _in_bytes(text, shaped, low, high)
    if remedy is None:
        return InvalidValue(
            f"{found}, and its values are {low:.3g} to {high:.3g}; pass it as it was before it "
            "was normalised"
        )
    return InvalidValue(f"{found}; pass {remedy}")


def _channels_last(text: str, array: Any) -> tuple[str, Any]:
    """Code that brings an array to the shape (h, w, 3), if the axes are clear, and its result."""
    tensor = hasattr(array, "permute")
    if len(array.shape) == 4 and array.shape[0] == 1:
        text, array = f"{text}[0]", array[0]
    if len(array.shape) == 3 and array.shape[2] != 3:
        if array.shape[0] == 1:
            text, array = f"{text}[0]", array[0]
        elif array.shape[2] == 1:
            text, array = f"{text}[..., 0]", array[..., 0]
        elif array.shape[2] == 4:
            text, array = f"{text}[..., :3]", array[..., :3]
        elif array.shape[0] in (3, 4):
            turn = "permute" if tensor else "transpose"
            text += ("" if array.shape[0] == 3 else "[:3]") + f".{turn}(1, 2, 0)"
            array = getattr(array[:3], turn)(1, 2, 0)
    if len(array.shape) == 2 and tensor:
        text, array = f"{text}[..., None].expand(-1, -1, 3)", array[..., None].expand(-1, -1, 3)
    elif len(array.shape) == 2:
        text, array = f"np.stack([{text}] * 3, -1)", np.stack([array] * 3, -1)
    return text, array


def _in_bytes(text: str, array: Any, low: float, high: float) -> str | None:
    """Code that brings the values to bytes from 0 to 255, or None if their meaning is unclear."""
    kind = _kind(array)
    convert = "to(torch.uint8)" if hasattr(array, "permute") else "astype(np.uint8)"
    if kind == "uint8":
        return text
    if kind == "bool":
        return f"255 * {text}.{convert}"
    if low < 0:
        return None
    if "float" not in kind:
        if high <= 255:
            return f"{text}.{convert}"
        return f"({text} >> 8).{convert}" if high < 1 << 16 else None
    if high <= 1:
        return f"(255 * {text}).round().{convert}"
    return f"{text}.round().{convert}" if 2 < high <= 255 else None
