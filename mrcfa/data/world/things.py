"""Objects in a street, with several looks each: cars, buses, people, trees, poles and signs."""

import numpy as np

from mrcfa.data.world.labels import BUS, CAR, PERSON, POLE, SIGN, TREE
from mrcfa.data.world.shapes import Canvas, Sprite
from mrcfa.data.world.textures import Random, leaves, shade

GLASS, RUBBER, CHROME = (58, 70, 84), (24, 24, 26), (170, 172, 176)
PAINTS = (
    (176, 32, 36), (36, 60, 140), (230, 230, 232), (30, 32, 36), (120, 124, 130), (60, 110, 70),
    (206, 160, 44), (150, 96, 60),
)  # fmt: skip
CLOTHES = (
    (40, 44, 60), (150, 40, 50), (60, 110, 160), (210, 200, 180), (70, 90, 60), (40, 40, 42),
    (200, 130, 50), (120, 60, 120),
)  # fmt: skip
SKIN = ((232, 190, 160), (190, 140, 105), (130, 90, 62), (90, 60, 44))
STEPS = 6
"""Number of pictures of a walking person."""


def _pick(random: Random, colours: tuple[tuple[int, int, int], ...]) -> tuple[float, ...]:
    tone = random.uniform(0.85, 1.12)
    return tuple(tone * level for level in colours[random.integers(len(colours))])


def car(random: Random, height: int, night: bool) -> Sprite:
    """A saloon, a hatchback or a van that drives to the right."""
    look = random.integers(3)
    aspect = (2.9, 2.5, 2.3)[look]
    canvas, paint = Canvas(height, aspect), _pick(random, PAINTS)
    roof = ((0.75, 1.75), (0.45, 1.65), (0.2, 1.7))[look]
    foot = ((0.45, 2.25), (0.2, 2.1), (0.12, 2.05))[look]
    canvas.paint(canvas.slanted(roof, foot, (0.05, 0.48)), paint, CAR)
    canvas.paint(canvas.box(0.08, 0.44, aspect - 0.06, 0.82), paint, CAR)
    canvas.paint(canvas.ellipse(aspect - 0.25, 0.6, 0.22, 0.2), paint, CAR)
    inner = tuple(side + shift for side, shift in zip(roof, (0.1, -0.1), strict=True))
    pane = tuple(side + shift for side, shift in zip(foot, (0.22, -0.2), strict=True))
    windows = canvas.slanted((inner[0], inner[1]), (pane[0], pane[1]), (0.12, 0.43))
    canvas.paint(windows, GLASS)
    middle = sum(roof) / 2
    canvas.paint(canvas.box(middle - 0.04, 0.1, middle + 0.04, 0.44), paint)
    canvas.paint(canvas.box(0.08, 0.7, aspect, 0.74), tuple(0.7 * level for level in paint))
    canvas.lit(random.choice((-1, 1)))
    for x in (0.55, aspect - 0.6):
        canvas.paint(canvas.ellipse(x, 0.8, 0.2, 0.2), RUBBER, CAR)
        canvas.paint(canvas.ellipse(x, 0.8, 0.1, 0.1), CHROME)
    lamp = (255, 244, 200) if night else (235, 235, 225)
    canvas.paint(canvas.ellipse(aspect - 0.08, 0.58, 0.06, 0.06), lamp)
    canvas.paint(canvas.box(0.06, 0.52, 0.14, 0.6), (230, 30, 30) if night else (150, 20, 20))
    return canvas.sprite()


def bus(random: Random, height: int, night: bool) -> Sprite:
    """A bus that drives to the right, in one or two colours, some with an advertisement."""
    aspect = random.uniform(2.5, 3.1)
    canvas, paint = Canvas(height, aspect), _pick(random, PAINTS[:3] + PAINTS[5:])
    canvas.paint(canvas.box(0.03, 0.05, aspect - 0.02, 0.88), paint, BUS)
    if random.random() < 0.5:
        canvas.paint(canvas.box(0, 0.05, aspect, 0.2), _pick(random, PAINTS))
    pane = (250, 226, 150) if night else GLASS
    for left in np.arange(0.12, aspect - 0.5, 0.36):
        canvas.paint(canvas.box(left, 0.22, left + 0.3, 0.5), pane)
    canvas.paint(canvas.box(aspect - 0.3, 0.2, aspect - 0.02, 0.56), GLASS)
    door = random.uniform(0.5, aspect - 1)
    canvas.paint(canvas.box(door, 0.22, door + 0.26, 0.84), tuple(0.6 * level for level in GLASS))
    if random.random() < 0.5:
        canvas.paint(canvas.box(0.1, 0.6, aspect - 0.6, 0.76), _pick(random, CLOTHES))
    canvas.lit(random.choice((-1, 1)))
    for x in (0.5, aspect - 0.55):
        canvas.paint(canvas.ellipse(x, 0.87, 0.12, 0.12), RUBBER, BUS)
        canvas.paint(canvas.ellipse(x, 0.87, 0.055, 0.055), CHROME)
    return canvas.sprite()


def person(random: Random, height: int) -> list[Sprite]:
    """Pictures of a person who walks to the right; some are dark and upright like a pole."""
    upright = random.random() < 0.3
    skin, hair = _pick(random, SKIN), _pick(random, ((30, 24, 20), (96, 66, 36), (170, 170, 172)))
    coat = (62.0, 62.0, 64.0) if upright else _pick(random, CLOTHES)
    trousers = coat if upright else _pick(random, CLOTHES)
    girth = random.uniform(0.075, 0.1)
    side = random.choice((-1, 1))
    sprites = []
    for step in range(STEPS):
        canvas = Canvas(height, 0.5)
        swing = (0.02 if upright else 0.12) * np.sin(2 * np.pi * step / STEPS)
        for leg in (-swing, swing):
            hip, foot = (0.25 - 0.045, 0.25 + 0.045), (0.25 + leg - 0.045, 0.25 + leg + 0.045)
            canvas.paint(canvas.slanted(hip, foot, (0.5, 0.97)), trousers, PERSON)
            canvas.paint(canvas.box(foot[0], 0.94, foot[1] + 0.04, 1), RUBBER, PERSON)
        for arm in (swing, -swing):
            shoulder, hand = (0.25 - 0.03, 0.25 + 0.03), (0.25 + arm - 0.03, 0.25 + arm + 0.03)
            tone = tuple(0.85 * level for level in coat)
            canvas.paint(canvas.slanted(shoulder, hand, (0.2, 0.54)), tone, PERSON)
        chest = (0.25 - girth, 0.25 + girth)
        canvas.paint(canvas.slanted(chest, (0.25 - 0.08, 0.25 + 0.08), (0.17, 0.56)), coat, PERSON)
        canvas.paint(canvas.ellipse(0.25, 0.09, 0.06, 0.08), skin, PERSON)
        canvas.paint(canvas.ellipse(0.24, 0.06, 0.062, 0.055), hair, PERSON)
        canvas.lit(side)
        sprites.append(canvas.sprite())
    return sprites


def tree(random: Random, height: int) -> Sprite:
    """A tree with a round crown, or a conifer."""
    canvas = Canvas(height, 0.75)
    bark = _pick(random, ((92, 70, 52), (70, 60, 52), (120, 104, 88)))
    canvas.paint(canvas.box(0.345, 0.5, 0.405, 1), bark, TREE)
    green = _pick(random, ((64, 104, 44), (44, 86, 46), (104, 120, 44), (150, 104, 40)))
    crown = np.clip(shade(green, leaves(random, *canvas.shape)), 0, 255)
    if random.random() < 0.3:
        for top in (0.02, 0.22, 0.42):
            cone = canvas.slanted((0.37, 0.38), (0.12 - top / 8, 0.63 + top / 8), (top, top + 0.36))
            canvas.paint(cone, crown, TREE)
    else:
        for _ in range(9):
            x, y = random.uniform(0.2, 0.55), random.uniform(0.16, 0.48)
            size = random.uniform(0.1, 0.19)
            canvas.paint(canvas.ellipse(x, y, size, 0.9 * size), crown, TREE)
    canvas.lit(random.choice((-1, 1)))
    return canvas.sprite()


def pole(random: Random, height: int, night: bool) -> Sprite:
    """A post, alone or with a lamp, a traffic light or a sign."""
    canvas, grey = Canvas(height, 0.4), _pick(random, ((70, 72, 76), (110, 112, 114), (60, 80, 66)))
    look = random.integers(4)
    top = (0.04, 0.2, 0.16, 0.3)[look]
    canvas.paint(canvas.box(0.18, top, 0.225, 1), grey, POLE)
    canvas.paint(canvas.box(0.16, 0.94, 0.245, 1), grey, POLE)
    canvas.lit(random.choice((-1, 1)))
    if look == 0:
        canvas.paint(canvas.box(0.18, 0.03, 0.38, 0.055), grey, POLE)
        lamp = (255, 240, 180) if night else (200, 200, 196)
        canvas.paint(canvas.ellipse(0.34, 0.07, 0.05, 0.025), lamp, POLE)
    elif look == 1:
        canvas.paint(canvas.box(0.14, 0.04, 0.265, 0.32), (34, 36, 38), SIGN)
        shown = random.integers(3)
        for number, on in enumerate(((235, 40, 40), (240, 190, 40), (40, 220, 110))):
            tone = on if number == shown else tuple(0.25 * level for level in on)
            canvas.paint(canvas.ellipse(0.2025, 0.085 + 0.09 * number, 0.036, 0.036), tone)
    elif look == 2:
        _sign(canvas, random)
    return canvas.sprite()


def _sign(canvas: Canvas, random: Random) -> None:
    rim, field = (200, 36, 40), (240, 240, 236)
    kind = random.integers(3)
    if kind == 0:
        canvas.paint(canvas.ellipse(0.2025, 0.12, 0.115, 0.115), rim, SIGN)
        canvas.paint(canvas.ellipse(0.2025, 0.12, 0.085, 0.085), field)
        canvas.paint(canvas.box(0.15, 0.1, 0.255, 0.14), (40, 40, 42))
    elif kind == 1:
        canvas.paint(canvas.slanted((0.2, 0.205), (0.08, 0.325), (0.02, 0.23)), rim, SIGN)
        canvas.paint(canvas.slanted((0.2, 0.205), (0.12, 0.285), (0.07, 0.205)), field)
    else:
        canvas.paint(canvas.box(0.09, 0.02, 0.315, 0.23), (30, 80, 170), SIGN)
        canvas.paint(canvas.box(0.17, 0.06, 0.235, 0.19), field)
