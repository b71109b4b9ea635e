"""Streams of bundles that take NV12 or BGR: the same masks to the bit, and who is turned away."""

import numpy as np
import pytest
import torch
from naming import naming
from PIL import Image

from mrcfa import Stream, Streams
from mrcfa.errors import InvalidValue
from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range
from mrcfa.stream.layouts import as_frame

BGR = InputFormat(Layout.BGR)
NV12 = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
SIZE = (96, 160)


@pytest.fixture(scope="module")
def nv12(bundle):
    """A bundle like `bundle("b0")` for NV12."""
    return bundle("b0", input=NV12, variants=("fp32",))


def masks(path, frames, **options):
    with Stream(path, "onnxruntime:cpu", **options) as stream:
        return np.stack([stream(frame) for frame in frames])


def coloured(count, size):
    """Moving fields of colours that the golden weights take for several classes."""
    y, x = np.mgrid[: size[0], : size[1]]
    fields = (x // 20 * 37 + y // 16 * 91) % 256
    picture = np.stack([x * 255 // size[1], y * 255 // size[0], fields], -1).astype(np.uint8)
    return [np.roll(picture, 8 * number, axis=1) for number in range(count)]


def test_nv12_has_the_masks_of_its_rgb_to_the_bit(bundle, nv12):
    frames = [NV12.from_rgb(image) for image in coloured(12, SIZE)]
    pictures = [NV12.to_rgb(frame) for frame in frames]
    wanted = masks(bundle("b0"), pictures)
    assert len(np.unique(wanted)) > 3
    np.testing.assert_array_equal(masks(nv12, frames), wanted)


@pytest.mark.thorough
@pytest.mark.parametrize("frame", [SIZE, (108, 190)], ids=str)
@pytest.mark.parametrize("form", [BGR, InputFormat(Layout.NV12, Matrix.BT709, Range.FULL)], ids=str)
def test_every_variant_has_the_masks_of_the_same_rgb(form, frame, bundle):
    frames = [form.from_rgb(image) for image in coloured(12, frame)]
    pictures = [form.to_rgb(image) for image in frames]
    for variants in (("fp32",), ("fp32-gpu",)):
        alone = bundle("b0", frame=frame, variants=variants)
        found = bundle("b0", input=form, frame=frame, variants=variants)
        np.testing.assert_array_equal(masks(found, frames), masks(alone, pictures))
    eager = Stream(found, "eager")
    for image, mask in zip(frames, masks(found, frames), strict=True):
        assert (eager(image) == mask).mean() > 0.999


def test_a_stream_may_convert_rgb_of_any_size(nv12, clip):
    frames = clip(4, *SIZE)
    wanted = masks(nv12, [NV12.from_rgb(image) for image in frames])
    np.testing.assert_array_equal(masks(nv12, frames, convert_rgb=True), wanted)
    images = [Image.fromarray(image) for image in frames]
    np.testing.assert_array_equal(masks(nv12, images, convert_rgb=True), wanted)
    assert masks(nv12, clip(1, 77, 131), convert_rgb=True).shape == (1, 77, 131)


def test_nv12_of_another_size_is_resized_on_the_host(nv12, clip):
    frame = NV12.from_rgb(clip(1, 192, 320)[0])
    small = NV12.from_rgb(clip(1, *SIZE)[0])
    with Stream(nv12, "onnxruntime:cpu") as stream:
        assert stream.input == NV12
        assert stream(frame).shape == (192, 320)
        assert stream(torch.from_numpy(small)).shape == SIZE
    with Streams(nv12, "onnxruntime:cpu") as streams:
        assert streams({"front": frame})["front"].shape == (192, 320)


@pytest.mark.parametrize(
    ("form", "frame", "things"),
    [
        (
            NV12,
            np.zeros((*SIZE, 3), np.uint8),
            ("NV12", (144, 160), "stream.input.from_rgb(frame)"),
        ),
        (NV12, np.zeros((144, 160), np.float32), ("float32", "convert_rgb=True")),
        (NV12, np.zeros((145, 160), np.uint8), ((145, 160), (144, 160))),
        (NV12, Image.new("RGB", (160, 96)), ("Image", "convert_rgb=True")),
        (NV12, "frame.yuv", ("str", "NV12")),
        (BGR, Image.new("RGB", (160, 96)), ("BGR", "stream.input.from_rgb(np.asarray(frame")),
        (BGR, np.zeros((3, *SIZE), np.uint8), ("frame.transpose(1, 2, 0)",)),
        (RGB, np.zeros((144, 160), np.uint8), ("NV12", "--input nv12")),
        (RGB, np.zeros((145, 160), np.uint8), ("np.stack",)),
    ],
)
def test_other_frames_are_told_what_converts_them(form, frame, things):
    with pytest.raises(InvalidValue, match=naming(*things)):
        as_frame(frame, form, SIZE)


def test_the_remedy_for_rgb_is_a_frame(clip):
    frame = clip(1, *SIZE)[0]
    for form in (BGR, NV12):
        assert form.describes(as_frame(form.from_rgb(frame), form, SIZE))
