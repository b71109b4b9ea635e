"""Frames as programs have them: some are taken as they are, the others get a remedy that works."""

import io

import numpy as np
import pytest
import torch
from naming import naming
from PIL import Image

from mrcfa.errors import InvalidValue
from mrcfa.stream.rgb import as_rgb

RGB = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
RGB[0, 0], RGB[0, 1] = 0, 255
GREY = np.stack([RGB[..., 0]] * 3, -1)


@pytest.mark.parametrize(
    "frame", [RGB, Image.fromarray(RGB), torch.from_numpy(RGB), RGB[::-1, ::-1][::-1, ::-1]]
)
def test_arrays_pillow_images_and_tensors_are_the_same_frame(frame):
    found = as_rgb(frame)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, RGB)


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


ALPHA = np.concatenate([RGB, RGB[..., :1]], -1)
IN_01 = (RGB / 255).astype(np.float32)
FIRST = RGB.transpose(2, 0, 1)
TO_TENSOR = tensor(IN_01.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (IN_01, RGB),
        (IN_01.astype(np.float64), RGB),
        (RGB.astype(np.float32), RGB),
        (RGB.astype(np.int64), RGB),
        (RGB.astype(np.uint16) << 8, RGB),
        (RGB == 255, 255 * (RGB == 255)),
        (FIRST, RGB),
        (FIRST[None], RGB),
        (RGB[None], RGB),
        (GREY[..., 0], GREY),
        (GREY[..., :1], GREY),
        (ALPHA, RGB),
        (IN_01[..., 0], GREY),
        (tensor(FIRST), RGB),
        (TO_TENSOR, RGB),
        (TO_TENSOR[None].requires_grad_(), RGB),
        (tensor(ALPHA.transpose(2, 0, 1)), RGB),
        (TO_TENSOR[:1], GREY),
        (tensor(GREY[..., 0]), GREY),
        (tensor(RGB).bfloat16(), None),
        (Image.fromarray(GREY[..., 0]), GREY),
        (Image.fromarray(ALPHA), RGB),
        (Image.fromarray(RGB).convert("P"), None),
        (Image.fromarray(GREY[..., 0].astype(np.uint16) << 8), GREY),
    ],
)
def test_the_remedy_makes_a_frame_of_what_was_refused(frame, expected):
    with pytest.raises(InvalidValue) as refused:
        as_rgb(frame)
    remedy = str(refused.value).rpartition("; pass ")[2]
    found = as_rgb(eval(remedy, {"np": np, "torch": torch, "frame": frame}))
    assert found.shape == RGB.shape
    if expected is not None:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("frame", "things"),
    [
        ((IN_01 - 0.45) / 0.225, ("float32", "normalised")),
        (2 * IN_01, ("float32", 0, 2)),
        (np.full_like(IN_01, np.nan), ("float32",)),
        (np.stack([RGB] * 2), ((2, 4, 6, 3),)),
        (np.zeros((0, 6, 3), np.uint8), ((0, 6, 3),)),
        (RGB.astype(np.complex64), ("complex64",)),
        (RGB.astype(object), ("object",)),
        ("photo.jpg", ("str", "PIL.Image.open")),
        (io.FileIO(0, closefd=False), ("FileIO", "PIL.Image.open")),
        (None, ("NoneType",)),
        ([[1, 2, 3]], ("list",)),
        (Image.fromarray(RGB).convert("YCbCr"), ("YCbCr",)),
        (torch.zeros(4, 6, 3, dtype=torch.uint8, device="meta"), ("meta", "frame.cpu")),
    ],
)
def test_what_has_no_such_remedy_is_named(frame, things):
    with pytest.raises(InvalidValue, match=naming(*things)):
        as_rgb(frame)
