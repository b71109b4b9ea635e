"""NV12 from the decoder to the sink."""

import io
import sys
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range, planes
from mrcfa.video.cuts import CutDetector
from mrcfa.video.overlay import Renderer, Style
from mrcfa.video.pixels import as_rgb
from mrcfa.video.sinks import Nv12Picture, open_sink, pixels_of
from mrcfa.video.sources import open_source

SIZE = (96, 160)
NV12 = InputFormat(Layout.NV12, Matrix.BT709, Range.LIMITED)
ALL = [InputFormat(Layout.NV12, matrix, levels) for matrix in Matrix for levels in Range]
MATRICES, RANGES = {Matrix.BT709: 1, Matrix.BT601: 6}, {Range.LIMITED: 1, Range.FULL: 2}


def picture(size=SIZE, seed=0):
    """Fields of colours, whose edges are those of 16×16 pixels."""
    fields = np.random.default_rng(seed).integers(0, 256, (-(-size[0] // 16), -(-size[1] // 16), 3))
    return fields.astype(np.uint8).repeat(16, 0).repeat(16, 1)[: size[0], : size[1]]


def inner(image):
    """The middle of each field, where no filter reaches the next one."""
    return image[8::16, 8::16].astype(int)


def written(path, image, form=None, pixels="yuv420p", rotation=0, frames=2):
    """A lossless video of this picture, which names its matrix and its range if there is one."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1" if path.suffix == ".mkv" else "libx264", rate=15)
        stream.height, stream.width = image.shape[:2]
        stream.pix_fmt, stream.options = pixels, {} if path.suffix == ".mkv" else {"qp": "0"}
        if rotation:
            stream.set_display_rotation(rotation)
        if form is not None:
            stream.codec_context.colorspace = MATRICES[form.matrix]
            stream.codec_context.color_range = RANGES[form.range]
            frame = av.VideoFrame.from_ndarray(form.from_rgb(image), format="nv12")
            frame.colorspace, frame.color_range = MATRICES[form.matrix], RANGES[form.range]
            frame = frame.reformat(format=pixels)
        else:
            frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=pixels)
        for number in range(frames):
            frame.pts, frame.time_base = number, Fraction(1, 15)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return str(path)


def first(place, form):
    source = open_source(place)
    source.form = form
    return next(iter(source))


@pytest.mark.parametrize("named", ALL, ids=str)
def test_a_video_that_names_its_matrix_gives_the_colours_of_the_bundles(named, tmp_path):
    place = written(tmp_path / "a.mp4", picture(), named)
    frame = first(place, NV12)
    assert frame.form == NV12
    assert frame.image.flags.c_contiguous
    assert np.abs(inner(NV12.to_rgb(frame.image)) - inner(picture())).max() <= 4
    if named == NV12:
        np.testing.assert_array_equal(frame.image, NV12.from_rgb(picture()))


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_video_that_names_nothing_is_taken_as_the_bundles(form, tmp_path):
    place = written(tmp_path / "a.mkv", picture())
    (plain,) = {open_source(place)._container.streams.video[0].codec_context.color_range}
    assert plain == 0
    frames = [first(place, each).image for each in (form, NV12)]
    np.testing.assert_array_equal(*frames)


def test_a_turned_video_is_upright(tmp_path):
    upright = picture((160, 96))
    place = written(tmp_path / "a.mp4", np.rot90(upright, -1), NV12, rotation=90)
    frame = first(place, NV12)
    np.testing.assert_array_equal(frame.image, NV12.from_rgb(upright))


def test_what_cannot_be_nv12_is_rgb(tmp_path):
    odd = written(tmp_path / "a.mkv", picture((96, 161)), pixels="bgr0")
    Image.fromarray(picture()).save(tmp_path / "a.png")
    for place, size in ((odd, (96, 161)), (str(tmp_path / "a.png"), SIZE)):
        frame = first(place, NV12)
        assert frame.form == RGB
        assert frame.image.shape == (*size, 3)


@pytest.mark.parametrize("layout", Layout, ids=lambda layout: layout.value)
def test_raw_frames_are_in_the_bundles_format(layout, monkeypatch):
    form = InputFormat.usual(layout, SIZE[0])
    data = np.ascontiguousarray(form.from_rgb(picture()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.tobytes())))
    source = open_source("-", raw=SIZE)
    source.form = form
    (frame,) = source
    if layout is Layout.NV12:
        np.testing.assert_array_equal(frame.image, data)
    else:
        np.testing.assert_array_equal(frame.image, picture())


CLASSES = ("road", "car", "tree")
PALETTE = np.array([(128, 64, 128), (0, 0, 142), (107, 142, 35)], np.uint8)
MASK = np.zeros(SIZE, np.uint8)
MASK[:, 80:] = 1


@pytest.mark.parametrize("form", ALL, ids=str)
@pytest.mark.parametrize("options", [{}, {"alpha": 0.3, "only": ["car"]}], ids=str)
def test_an_overlay_of_nv12_shows_what_one_of_rgb_shows(form, options):
    colours = Style.OVERLAY, CLASSES, PALETTE
    frame = form.from_rgb(picture())
    wanted = Renderer(*colours, legend=False, **options)(form.to_rgb(frame), MASK)
    found = Renderer(*colours, legend=False, form=form, **options)(frame, MASK)
    assert isinstance(found, Nv12Picture)
    assert np.abs(inner(form.to_rgb(found.pixels)) - inner(wanted)).max() <= 4
    if "only" in options:
        left = [part[:, : part.shape[1] // 2] for part in (*planes(frame), *planes(found.pixels))]
        np.testing.assert_array_equal(left[0], left[2])
        np.testing.assert_array_equal(left[1], left[3])


@pytest.mark.parametrize("style", ["overlay", "side-by-side"])
def test_a_legend_in_nv12_has_the_colours_of_the_classes(style):
    mask = MASK.copy()
    mask[:48] = 2
    frame = NV12.from_rgb(np.full((*SIZE, 3), 100, np.uint8))
    shown = Renderer(Style(style), CLASSES, PALETTE, alpha=0, form=NV12)(frame, mask)
    picture = NV12.to_rgb(shown.pixels)
    assert picture.shape == (96, 320 if style == "side-by-side" else 160, 3)
    column = picture[-30:, -160:][:, 5].astype(int)
    for colour in PALETTE:
        assert np.abs(column - colour).max(axis=1).min() <= 6
    np.testing.assert_array_equal(picture[:48, :160], NV12.to_rgb(frame)[:48])


@pytest.mark.parametrize("style", ["mask", "color"])
def test_styles_without_the_frame_are_the_same(style):
    options = (Style(style), CLASSES, PALETTE)
    frame = NV12.from_rgb(picture())
    np.testing.assert_array_equal(
        Renderer(*options, form=NV12)(frame, MASK), Renderer(*options)(picture(), MASK)
    )


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_video_of_nv12_shows_its_colours_and_a_png_too(form, tmp_path):
    shown = Nv12Picture(form.from_rgb(picture()), form)
    assert np.abs(inner(pixels_of(shown)) - inner(picture())).max() <= 4
    with open_sink(str(tmp_path / "a.mp4"), (), PALETTE, Fraction(15)) as write:
        write("0", shown)
        write("1", Nv12Picture(form.from_rgb(picture((48, 80))), form))
        write("2", picture())
    with av.open(str(tmp_path / "a.mp4")) as file:
        one, fitted, rgb = file.decode(video=0)
    assert (one.colorspace, one.color_range) == (MATRICES[form.matrix], RANGES[form.range])
    for frame in (one, rgb):
        assert np.abs(inner(frame.to_ndarray(format="rgb24")) - inner(picture())).mean() < 8
    assert (fitted.height, fitted.width) == SIZE
    with open_sink(str(tmp_path / "a.png"), (), PALETTE, Fraction(15)) as write:
        write("0", shown)
    np.testing.assert_array_equal(
        np.asarray(Image.open(tmp_path / "a.png")), as_rgb(shown.pixels, form)
    )


def test_scene_cuts_are_seen_in_nv12():
    detector = CutDetector()
    dark, light = (NV12.from_rgb(np.full((*SIZE, 3), level, np.uint8)) for level in (20, 220))
    assert [detector.begins_scene(each, NV12) for each in (dark, dark, light, light)] == [
        False,
        False,
        True,
        False,
    ]
