"""The formula between NV12 and RGB, in NumPy and in the modules that become graphs."""

import numpy as np
import pytest
import torch
from naming import naming

from mrcfa.errors import InvalidValue, Mismatch
from mrcfa.export.pixels import gathered_pixels
from mrcfa.model.frames import Normalise, normaliser
from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range, planes

BGR = InputFormat(Layout.BGR)
NV12 = InputFormat(Layout.NV12, Matrix.BT709, Range.LIMITED)
ALL = [InputFormat(Layout.NV12, matrix, levels) for matrix in Matrix for levels in Range]


def noise(form, size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, form.shape(size), np.uint8)


def converted(frame, form):
    """RGB by the definition of the matrices, in float64 and not rounded."""
    luma, chroma = (part.astype(np.float64) for part in planes(frame))
    (red, blue), black = form.matrix.red_and_blue, form.range.black
    light, colour = form.range.steps
    y = (luma - black) / light
    u, v = np.moveaxis((chroma.repeat(2, 0).repeat(2, 1) - 128) / colour, -1, 0)
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    g = (y - red * r - blue * b) / (1 - red - blue)
    return 255 * np.stack([r, g, b], -1)


@pytest.mark.parametrize("form", ALL, ids=str)
def test_nv12_becomes_the_rgb_that_its_matrix_and_range_define(form):
    frame = noise(form, (64, 96))
    wanted = converted(frame, form).clip(0, 255)
    assert np.abs(form.to_rgb(frame) - wanted).max() < 0.52


@pytest.mark.parametrize("form", ALL, ids=str)
def test_no_sum_of_the_formula_needs_more_than_24_bits(form):
    luma, u, v, offset = form.rgb_weights
    for channel in range(3):
        terms = [255 * luma, 255 * u[channel], 255 * v[channel], offset[channel]]
        assert sum(term for term in terms if term > 0) < 1 << 24
        assert sum(term for term in terms if term < 0) > -1 << 24


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_picture_survives_the_way_to_nv12_and_back(form):
    blocks = np.random.default_rng(1).integers(0, 256, (9, 7, 3), np.uint8)
    picture = blocks.repeat(2, 0).repeat(2, 1)
    assert np.abs(form.to_rgb(form.from_rgb(picture)).astype(int) - picture).max() <= 2
    grey = picture[..., :1].repeat(3, -1)
    assert (planes(form.from_rgb(grey))[1] == 128).all()


@pytest.mark.parametrize("form", [RGB, BGR, NV12], ids=str)
def test_a_shape_tells_the_size_and_a_sample_is_of_the_picture(form):
    frame = noise(form, (48, 64))
    assert form.describes(frame)
    assert form.size(frame.shape) == (48, 64)
    step = 8 if form is NV12 else 4
    np.testing.assert_array_equal(form.sampled(frame, 4), form.to_rgb(frame)[::step, ::step])


@pytest.mark.parametrize("frame", [(96, 160), (107, 190), (192, 320), (48, 80)], ids=str)
@pytest.mark.parametrize("form", [BGR, *ALL], ids=str)
def test_every_arrangement_reads_the_pixels_of_the_same_rgb(form, frame):
    size = (96, 160)
    frame = (frame[0] // 2 * 2, frame[1])
    image = noise(form, frame)
    rgb = torch.from_numpy(np.ascontiguousarray(form.to_rgb(image)))[None]
    image = torch.from_numpy(image)[None]
    plain = Normalise(size)(rgb), gathered_pixels(frame, size, RGB).float()(rgb)
    found = normaliser(size, form)(image), gathered_pixels(frame, size, form).float()(image)
    for wanted, pixels in zip(plain, found, strict=True):
        assert torch.equal(wanted, pixels)


def test_hd_has_the_matrix_of_hd():
    assert InputFormat.usual(Layout.NV12, 576).matrix is Matrix.BT601
    assert InputFormat.usual(Layout.NV12, 720).matrix is Matrix.BT709
    assert InputFormat.usual(Layout.RGB, 720) == RGB


@pytest.mark.parametrize(
    ("make", "things"),
    [
        (lambda: InputFormat(Layout.NV12), ("nv12", "matrix", "range")),
        (lambda: InputFormat(Layout.RGB, Matrix.BT601), ("rgb", "matrix")),
        (lambda: NV12.check((107, 189)), ("107x189", "108x190")),
        (lambda: NV12.from_rgb(np.zeros((5, 4, 3), np.uint8)), ("5x4", "6x4")),
    ],
)
def test_what_does_not_fit_is_refused(make, things):
    with pytest.raises(InvalidValue, match=naming(*things)):
        make()


@pytest.mark.parametrize("shape", [(96,), (96, 160), (96, 160, 4)])
def test_a_picture_that_is_no_rgb_is_refused_with_its_shape(shape):
    with pytest.raises(Mismatch, match=naming(str(shape))):
        InputFormat.usual(Layout.NV12, 96).from_rgb(np.zeros(shape, np.uint8))
