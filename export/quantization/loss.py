"""What 8 bits cost on given footage: points of mIoU, or of agreement where nothing is labelled."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.bundle import Bundle
from mrcfa.data.metrics import ConfusionMatrix
from mrcfa.export.quantization.footage import Footage
from mrcfa.stream.stream import Stream

WORST_SHARE = 0.005
"""Smaller classes are left out of the worst: one pixel of a dozen would decide."""
Advance = Callable[[], None]
Mask = NDArray[np.uint8]


@dataclass(frozen=True)
class Score:
    loss: float
    """In points, against the reference."""
    agreement: float
    """Share of pixels with the reference's class."""
    mean_iou: float
    """Of the masks of the worst stream, the reference's being the truth: what is compared elsewhere
    is short as well, and a class that it hardly shows counts as much as any other."""
    worst_iou: float
    """Of a class in all of them, or in any."""


class Judge:
    """Holds the reference's masks of the footage, and compares others with them."""

    def __init__(self, bundle: Bundle, footage: Footage, threads: int, advance: Advance) -> None:
        self._footage, self._threads = footage, threads
        self._classes = len(bundle.manifest.classes)
        self._wanted = self._masks(bundle.path, None, advance)
        self._mean_iou = self._scored(self._wanted)
        self.measure = "mIoU" if footage.labelled else "agreement"

    def score(self, path: Path, precision: str, advance: Advance) -> Score:
        """Of the bundle at `path`."""
        found = self._masks(path, precision, advance)
        streams = [self._alike(*each) for each in zip(found, self._wanted, strict=True)]
        whole = ConfusionMatrix(self._classes)
        whole.counts = np.sum([each.counts for each in streams], axis=0)
        agreement = whole.pixel_accuracy
        loss = self._mean_iou - self._scored(found) if self._footage.labelled else 1 - agreement
        return Score(
            100 * loss,
            agreement,
            min(each.mean_iou for each in streams),
            min(float(each.iou[each.shares >= WORST_SHARE].min()) for each in (whole, *streams)),
        )

    def _alike(self, masks: list[Mask], wanted: list[Mask]) -> ConfusionMatrix:
        confusion = ConfusionMatrix(self._classes)
        for mask, other in zip(masks, wanted, strict=True):
            confusion.add(mask, other)
        return confusion

    def _masks(self, path: Path, precision: str | None, advance: Advance) -> list[list[Mask]]:
        found: list[list[Mask]] = []
        with Stream(path, "onnxruntime:cpu", precision=precision, threads=self._threads) as stream:
            for shown in self._footage.streams:
                stream.reset()
                found.append([])
                for each in shown:
                    found[-1].append(stream(each.image))
                    advance()
        return found

    def _scored(self, masks: list[list[Mask]]) -> float:
        confusion = ConfusionMatrix(self._classes)
        for stream, shown in zip(masks, self._footage.streams, strict=True):
            for mask, each in zip(stream, shown, strict=True):
                if each.truth is not None:
                    confusion.add(mask, each.truth)
        return confusion.mean_iou
