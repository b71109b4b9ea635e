import numpy as np
import pytest
from naming import names, naming

from mrcfa.errors import InvalidValue
from mrcfa.video.overlay import Renderer, Style

CLASSES = ("road", "car", "traffic light", "handrail_or_fence")
PALETTE = np.array([(128, 64, 128), (0, 0, 142), (250, 170, 30), (190, 153, 153)], np.uint8)
IMAGE = np.full((96, 160, 3), 100, np.uint8)
MASK = np.repeat(np.array([0, 1], np.uint8), 48)[:, None].repeat(160, 1)
RIGHT = (slice(None), slice(120, None))
"""Where no legend is."""


def rendered(style, image=IMAGE, mask=MASK, **options):
    return Renderer(Style(style), CLASSES, PALETTE, **options)(image, mask)


def test_an_overlay_mixes_frame_and_colour_by_alpha():
    picture = rendered("overlay", alpha=0.25)
    expected = 0.75 * IMAGE + 0.25 * PALETTE[MASK]
    assert np.abs(picture[RIGHT] - expected[RIGHT]).max() <= 1


@pytest.mark.parametrize(("alpha", "expected"), [(0, IMAGE), (1, PALETTE[MASK])])
def test_the_ends_of_alpha_are_the_frame_and_the_colours(alpha, expected):
    np.testing.assert_array_equal(rendered("overlay", alpha=alpha)[RIGHT], expected[RIGHT])


def test_a_coloured_mask_has_the_colours_of_the_palette():
    np.testing.assert_array_equal(rendered("color", legend=False), PALETTE[MASK])


def test_the_legend_of_a_coloured_mask_lies_beside_it_and_keeps_its_width():
    one, both = rendered("color", mask=np.zeros_like(MASK)), rendered("color")
    np.testing.assert_array_equal(both[:, :160], PALETTE[MASK])
    assert one.shape == both.shape
    assert (one[:, 160:] != both[:, 160:]).any()


@pytest.mark.parametrize("style", ["overlay", "side-by-side"])
def test_without_a_legend_every_pixel_is_the_frames(style):
    plain = rendered(style, alpha=0, legend=False)
    np.testing.assert_array_equal(plain[:, -160:], IMAGE)


def test_side_by_side_shows_the_frame_and_the_overlay():
    picture = rendered("side-by-side")
    np.testing.assert_array_equal(picture[:, :160], IMAGE)
    np.testing.assert_array_equal(picture[:, 160:], rendered("overlay"))


def test_a_mask_is_the_mask():
    np.testing.assert_array_equal(rendered("mask"), MASK)


def test_classes_that_are_not_wanted_are_not_shown():
    only = ["Car"]
    road, car = MASK == 0, MASK == 1
    assert (rendered("overlay", only=only)[road] == 100).all()
    assert (rendered("color", only=only, legend=False)[road] == 0).all()
    assert (rendered("mask", only=only)[road] == 255).all()
    assert (rendered("mask", only=only)[car] == 1).all()


def test_wide_values_do_not_overflow():
    white = np.full_like(IMAGE, 255)
    palette = np.full_like(PALETTE, 255)
    picture = Renderer(Style.OVERLAY, CLASSES, palette)(white, MASK)
    assert (picture[RIGHT] >= 254).all()


@pytest.mark.parametrize(("style", "left"), [("overlay", 0), ("color", 160)])
def test_the_legend_shows_the_colours_of_the_classes_that_are_present(style, left):
    mask = MASK.copy()
    mask[0, 0] = 2  # one pixel is too few to be listed
    bare = rendered(style, mask=mask, legend=False, alpha=0)
    legend = rendered(style, mask=mask, alpha=0)
    assert (bare[:48] == legend[:48, :160]).all()
    shown = {tuple(colour) for colour in legend[76:, left : left + 10].reshape(-1, 3).tolist()}
    assert {tuple(PALETTE[0]), tuple(PALETTE[1])} <= shown
    assert tuple(PALETTE[2]) not in shown


def test_a_legend_longer_than_the_frame_leaves_half_of_it_free():
    mask = np.arange(32 * 40, dtype=np.uint8).reshape(32, 40) % 4
    image = np.full((32, 40, 3), 7, np.uint8)
    np.testing.assert_array_equal(rendered("overlay", image, mask, alpha=0)[:16], image[:16])


@pytest.mark.parametrize(
    ("name", "near", "far"),
    [
        ("cra", ["car"], ["traffic_light"]),
        ("fence", ["handrail_or_fence"], ["car"]),
        ("submarine", ["road", "car", "traffic_light", "handrail_or_fence"], []),
    ],
)
def test_an_unknown_class_is_answered_with_the_nearest(name, near, far):
    with pytest.raises(InvalidValue, match=naming(repr(name), *near)) as refused:
        rendered("overlay", only=["road", name])
    assert not any(names(str(refused.value), each) for each in far)


def test_names_may_be_written_with_spaces_or_underscores():
    assert (rendered("mask", only=["traffic_light", "handrail or fence"]) == 255).all()
