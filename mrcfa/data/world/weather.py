"""Light, fog, rain and camera faults, which turn a clean scene into a picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.world.textures import Random

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Weather:
    """The weather, light and camera of one scene."""

    night: bool
    fog: float
    """Opacity of the fog at the horizon, 0 to 0.8."""
    haze: tuple[float, float, float]
    """The colour of fog and of the sky at the horizon."""
    rain: float
    """Brightness of streaks of rain, in levels of 255; 0 for none."""
    snow: bool
    grain: float
    """Standard deviation of the sensor's noise, in levels of 255."""
    flicker: float
    """Largest relative change of the exposure in a frame."""
    faults: float
    """Share of the frames that are too dark or have coarse blocks."""
    tint: tuple[float, float, float]


def weather(random: Random) -> Weather:
    """Random weather; about a third is clear, and more than half of the sensors are noisy."""
    kind = random.choice(("clear", "clear", "overcast", "fog", "rain", "snow", "night"))
    night = kind == "night"
    warm = random.uniform(-0.08, 0.08)
    grain = random.uniform(14, 40) if night or random.random() < 0.5 else random.uniform(3, 12)
    level = {"overcast": 205.0, "fog": 200.0, "rain": 165.0, "snow": 215.0}.get(kind, 225.0)
    haze = (18.0, 22.0, 38.0) if night else (level * (1 + warm), level, level * (1 - warm))
    return Weather(
        night=night,
        fog=random.uniform(0.5, 0.8) if kind == "fog" else random.uniform(0, 0.25),
        haze=haze,
        rain=random.uniform(14, 34) if kind == "rain" else 0,
        snow=kind == "snow",
        grain=grain,
        flicker=random.uniform(0.02, 0.18),
        faults=random.uniform(0, 0.16),
        tint=(1 + warm, 1.0, 1 - warm),
    )


class Lens:
    """A camera model: adds exposure, blur, noise and rain to clean pictures."""

    def __init__(self, random: Random, conditions: Weather, size: tuple[int, int]) -> None:
        self._random, self._weather, self._size = random, conditions, size
        height, width = size
        margin = 48
        bank = random.normal(0, conditions.grain, (height + margin, width + margin, 3))
        self._noise = np.clip(np.rint(bank), -120, 120).astype(np.int16)
        self._margin = margin
        self._drops = self._streaks() if conditions.rain or conditions.snow else None
        self._exposure = (
            random.uniform(0.55, 0.7) if conditions.night else random.uniform(0.85, 1.1)
        )

    def __call__(self, picture: Image, blur: int) -> Image:
        """The picture of the sensor; `blur` is the camera's motion during exposure, in pixels."""
        if blur > 1:
            picture = _smeared(picture, blur)
        gain = self._exposure * (1 + self._random.uniform(-1, 1) * self._weather.flicker)
        noise = self._shifted(self._noise)
        if self._random.random() < self._weather.faults:
            if self._random.random() < 0.5:
                gain, noise = 0.45 * gain, 2 * noise
            else:
                picture = _blocks(picture, max(2, self._size[0] // 40))
        levels = np.arange(256, dtype=np.float32)[:, None] * np.array(
            self._weather.tint, np.float32
        )
        table = np.clip(levels * gain, 0, 255).astype(np.int16)
        seen = np.stack([table[:, c].take(picture[..., c]) for c in range(3)], axis=-1)
        seen += noise
        if self._drops is not None:
            seen += self._shifted(self._drops)[..., None]
        return np.clip(seen, 0, 255, out=seen).astype(np.uint8)

    def _shifted(self, tile: NDArray[np.int16]) -> NDArray[np.int16]:
        """A random crop of a larger tile at frame size, mirrored half of the time."""
        top, left = self._random.integers(self._margin, size=2)
        height, width = self._size
        part = tile[top : top + height, left : left + width]
        return part[:, ::-1] if self._random.random() < 0.5 else part

    def _streaks(self) -> NDArray[np.int16]:
        """A tile of slanted lines of rain, or of flakes of snow."""
        height, width = (side + self._margin for side in self._size)
        tile = np.zeros((height, width), np.int16)
        unit = max(1, self._size[0] // 160)
        count = height * width // (900 * unit)
        tops = self._random.integers(height, size=count)
        lefts = self._random.integers(width, size=count)
        if self._weather.snow:
            for dy in range(unit):
                for dx in range(unit):
                    tile[(tops + dy) % height, (lefts + dx) % width] = 110
            return tile
        for step in range(7 * unit):
            tile[(tops + step) % height, (lefts + step // 4) % width] = int(self._weather.rain)
        return tile


def _blocks(picture: Image, side: int) -> Image:
    """The picture as blocks of their centre's colour, like video at a very low bit rate."""
    rows, columns = (
        np.minimum(np.arange(length) // side * side + side // 2, length - 1)
        for length in picture.shape[:2]
    )
    return picture[rows][:, columns]


def _smeared(picture: Image, pixels: int) -> Image:
    """Horizontal motion blur: the mean of the picture shifted by 0, half and all of `pixels`."""
    total = picture.astype(np.uint16)
    for shift in (pixels // 2, pixels):
        total += np.roll(picture, shift, axis=1)
    return (total // 3).astype(np.uint8)
