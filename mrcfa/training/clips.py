"""Training samples: clips of a dataset, cropped and distorted.

A sample depends only on the seed and on its number. So a run that is resumed or distributed over
processes gets the same samples in the same order.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from mrcfa.data.dataset import Clip, LabelledVideos
from mrcfa.data.frames import labelled_frame
from mrcfa.data.labels import IGNORED
from mrcfa.errors import NotFound
from mrcfa.model.config import MEAN, STD
from mrcfa.model.frames import resize
from mrcfa.training.recipe import Recipe

Picture = NDArray[np.uint8]
Labelled = tuple[Picture, Picture]
"""A frame (h, w, 3) and its truth (h, w)."""
TRIES = 10
"""Largest number of crops drawn until no class fills too much of one."""


class Clips(Dataset[tuple[Tensor, Tensor]]):
    """Samples by number: normalised frames (T, 3, h, w), the target last, and labels (T, h, w)."""

    def __init__(
        self,
        videos: LabelledVideos,
        offsets: tuple[int, ...],
        size: tuple[int, int],
        recipe: Recipe,
    ) -> None:
        self._videos, self._offsets, self._size, self._recipe = videos, offsets, size, recipe
        self._targets = [
            (clip, number)
            for clip in videos.clips
            for number, image in enumerate(clip.images)
            if image in clip.masks
        ]
        if not self._targets:
            raise NotFound(
                f"the split {videos.split!r} of {videos.root} has no masks to learn from"
            )

    def __len__(self) -> int:
        return self._recipe.iterations * self._recipe.batch

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        random, clip, target = self._drawn(number)
        numbers = [max(0, target - offset) for offset in (*self._offsets, 0)]
        pairs = [self._frame(clip, index) for index in numbers]
        pairs = cropped(pairs, self._size, self._recipe, random)
        frames = normalised([distort(image, self._recipe, random) for image, _ in pairs])
        labels = torch.from_numpy(np.stack([mask for _, mask in pairs])).long()
        return self._padded(frames, 0), self._padded(labels, IGNORED)

    def _padded(self, pictures: Tensor, value: float) -> Tensor:
        """The pictures padded below and on the right to the size of a crop."""
        height, width = self._recipe.crop
        return F.pad(
            pictures, (0, width - pictures.shape[-1], 0, height - pictures.shape[-2]), value=value
        )

    def name_of(self, number: int) -> str:
        """The video and the target frame of a sample, for messages."""
        _, clip, target = self._drawn(number)
        return f"{clip.name}/{clip.images[target].name}"

    def _drawn(self, number: int) -> tuple[np.random.Generator, Clip, int]:
        """A sample's random generator, and its target: a video and a frame number in it."""
        random = np.random.default_rng((self._recipe.seed, number))
        return random, *self._targets[random.integers(len(self._targets))]

    def _frame(self, clip: Clip, number: int) -> Labelled:
        image, truth = labelled_frame(self._videos, clip, clip.images[number])
        return image, np.full(image.shape[:2], IGNORED, np.uint8) if truth is None else truth


class Shard(Sampler[int]):
    """The numbers of one process's samples, starting at an iteration."""

    def __init__(self, recipe: Recipe, first: int, rank: int, world: int) -> None:
        self._recipe, self._first, self._rank, self._world = recipe, first, rank, world

    def __iter__(self) -> Iterator[int]:
        share = self._recipe.batch // self._world
        for iteration in range(self._first, self._recipe.iterations):
            start = iteration * self._recipe.batch + self._rank * share
            yield from range(start, start + share)


def cropped(
    frames: list[Labelled], size: tuple[int, int], recipe: Recipe, random: np.random.Generator
) -> list[Labelled]:
    """Random resize, crop and flip, equal for all frames of a clip."""
    ratio = random.uniform(*recipe.ratio)
    size = (max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio)))
    flip = random.random() < recipe.flip
    frames = [(_resized(image, size), _resized_mask(mask, size)) for image, mask in frames]
    rows, columns = _window(frames[-1][1], recipe, random)

    def cut(picture: Picture) -> Picture:
        part = picture[rows, columns]
        return part[:, ::-1] if flip else part

    return [(cut(image), cut(mask)) for image, mask in frames]


def _resized(image: Picture, size: tuple[int, int]) -> Picture:
    """The image resized as at inference: bilinear, half-pixel centres, no antialiasing."""
    pixels = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
    return resize(pixels, size)[0].permute(1, 2, 0).numpy()


def _resized_mask(mask: Picture, size: tuple[int, int]) -> Picture:
    rows, columns = (
        ((np.arange(want) + 0.5) * have / want).astype(np.intp)
        for want, have in zip(size, mask.shape, strict=True)
    )
    return mask[rows[:, None], columns]


def _window(mask: Picture, recipe: Recipe, random: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of a crop that no class fills too much, or of the last one tried."""
    height, width = recipe.crop
    room = [max(0, have - want) for have, want in zip(mask.shape, recipe.crop, strict=True)]
    for _ in range(TRIES):
        top, left = (int(random.integers(space + 1)) for space in room)
        window = slice(top, top + height), slice(left, left + width)
        counts = np.bincount(mask[window].ravel(), minlength=256)[:IGNORED]
        if counts.max() <= recipe.most_of_one_class * counts.sum():
            break
    return window


def distort(image: Picture, recipe: Recipe, random: np.random.Generator) -> NDArray[np.float32]:
    """Change brightness, contrast, saturation and hue, each with probability one half.

    Contrast comes before or after saturation and hue. Every step clips to the range of pixels, so
    the order matters.
    """
    pixels = image.astype(np.float32)
    if random.random() < 0.5:
        pixels = np.clip(pixels + random.uniform(-recipe.brightness, recipe.brightness), 0, 255)
    contrast = random.uniform(*recipe.contrast) if random.random() < 0.5 else 1.0
    before, after = (contrast, 1.0) if random.random() < 0.5 else (1.0, contrast)
    pixels = np.clip(pixels * np.float32(before), 0, 255)
    pixels = np.clip(_coloured(pixels, recipe, random), 0, 255)
    return np.clip(pixels * np.float32(after), 0, 255)


def _coloured(
    pixels: NDArray[np.float32], recipe: Recipe, random: np.random.Generator
) -> NDArray[np.float32]:
    """Change saturation and hue by one matrix on RGB: scale from, and rotate around, grey."""
    stretch = random.uniform(*recipe.saturation) if random.random() < 0.5 else 1.0
    angle = random.uniform(-recipe.hue, recipe.hue) * np.pi / 90 if random.random() < 0.5 else 0.0
    if stretch == 1 and angle == 0:
        return pixels
    grey = np.full((3, 3), 1 / 3)
    cross = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / 3**0.5
    rotation = np.cos(angle) * np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * grey
    matrix = grey + stretch * (rotation - grey)
    return pixels @ matrix.T.astype(np.float32)


def normalised(frames: list[NDArray[np.float32]]) -> Tensor:
    """The network's input (T, 3, h, w) for RGB frames (h, w, 3)."""
    stacked = (np.stack(frames) - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()
