"""Training samples: clips of a dataset, cropped and distorted.

A sample depends only on the seed and on its number. So a run that is resumed or distributed over
processes gets the same samples in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from mrcfa.data.dataset import Clip, LabelledVideos
from mrcfa.data.images import read_image
from mrcfa.data.labels import IGNORED
from mrcfa.errors import Mismatch, NotFound
from mrcfa.model.config import MEAN, STD
from mrcfa.model.frames import resize
from mrcfa.training.recipe import Recipe

Frames = list[NDArray[np.uint8]]
TRIES = 10
"""Largest number of crops drawn until no class fills too much of one."""


@dataclass(frozen=True)
class Target:
    """An annotated frame, by its video and its number there."""

    clip: Clip
    number: int


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
            Target(clip, number)
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
        random = np.random.default_rng((self._recipe.seed, number))
        target = self._targets[random.integers(len(self._targets))]
        numbers = [max(0, target.number - offset) for offset in (*self._offsets, 0)]
        pairs = [self._frame(target.clip, index) for index in numbers]
        images, masks = Geometry(self._recipe, self._size, random)(
            [image for image, _ in pairs], [mask for _, mask in pairs]
        )
        frames = normalised([distort(image, self._recipe, random) for image in images])
        labels = torch.from_numpy(np.stack(masks)).long()
        return self._padded(frames, 0), self._padded(labels, IGNORED)

    def _padded(self, pictures: Tensor, value: float) -> Tensor:
        """The pictures padded below and on the right to the size of a crop."""
        height, width = self._recipe.crop
        return F.pad(
            pictures, (0, width - pictures.shape[-1], 0, height - pictures.shape[-2]), value=value
        )

    def name_of(self, number: int) -> str:
        """The video and the target frame of a sample, for messages."""
        random = np.random.default_rng((self._recipe.seed, number))
        target = self._targets[random.integers(len(self._targets))]
        return f"{target.clip.name}/{target.clip.images[target.number].name}"

    def _frame(self, clip: Clip, number: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        path = clip.images[number]
        image = read_image(path)
        mask = clip.masks.get(path)
        if mask is None:
            return image, np.full(image.shape[:2], IGNORED, np.uint8)
        truth = self._videos.truth(mask)
        if truth.shape != image.shape[:2]:
            raise Mismatch(f"the mask {mask} and its frame differ in size; make them equal")
        return image, truth


class Shard(Sampler[int]):
    """The numbers of one process's samples, starting at an iteration."""

    def __init__(self, recipe: Recipe, first: int, rank: int, world: int) -> None:
        self._recipe, self._first, self._rank, self._world = recipe, first, rank, world

    def __iter__(self) -> Iterator[int]:
        share = self._recipe.batch // self._world
        for iteration in range(self._first, self._recipe.iterations):
            start = iteration * self._recipe.batch + self._rank * share
            yield from range(start, start + share)


class Geometry:
    """Random resize, crop and flip, equal for all frames of a clip."""

    def __init__(self, recipe: Recipe, size: tuple[int, int], random: np.random.Generator) -> None:
        self._recipe, self._random = recipe, random
        ratio = random.uniform(*recipe.ratio)
        self._size = tuple(max(1, round(side * ratio)) for side in size)
        self._flip = random.random() < recipe.flip

    def __call__(self, images: Frames, masks: Frames) -> tuple[Frames, Frames]:
        images = [self._resized(image) for image in images]
        masks = [self._resized_mask(mask) for mask in masks]
        top, left = self._corner(masks[-1])
        return (
            [self._cut(image, top, left) for image in images],
            [self._cut(mask, top, left) for mask in masks],
        )

    def _resized(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The image resized as at inference: bilinear, half-pixel centres, no antialiasing."""
        pixels = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
        return resize(pixels, self._size)[0].permute(1, 2, 0).numpy()

    def _resized_mask(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        rows, columns = (
            ((np.arange(want) + 0.5) * have / want).astype(np.intp)
            for want, have in zip(self._size, mask.shape, strict=True)
        )
        return mask[rows[:, None], columns]

    def _corner(self, mask: NDArray[np.uint8]) -> tuple[int, int]:
        """Top left corner of a crop that no class fills too much, or of the last one tried."""
        room = [
            max(0, have - want) for have, want in zip(mask.shape, self._recipe.crop, strict=True)
        ]
        for _ in range(TRIES):
            top, left = (int(self._random.integers(space + 1)) for space in room)
            part = mask[top : top + self._recipe.crop[0], left : left + self._recipe.crop[1]]
            counts = np.bincount(part.ravel(), minlength=256)[:IGNORED]
            if counts.max() <= self._recipe.most_of_one_class * counts.sum():
                break
        return top, left

    def _cut(self, picture: NDArray[np.uint8], top: int, left: int) -> NDArray[np.uint8]:
        height, width = self._recipe.crop
        part = picture[top : top + height, left : left + width]
        return part[:, ::-1] if self._flip else part


def distort(
    image: NDArray[np.uint8], recipe: Recipe, random: np.random.Generator
) -> NDArray[np.float32]:
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
