"""The loss of an 8-bit bundle on footage: points of mIoU, or of agreement without labels."""

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
"""The smallest class, as a share of the pixels, that counts in the worst IoU. In smaller classes a
single pixel of a dozen would decide."""
Advance = Callable[[], None]
Mask = NDArray[np.uint8]


@dataclass(frozen=True)
class Score:
    loss: float
    """Points that are lost against the reference."""
    agreement: float
    """Share of pixels with the reference's class."""
    mean_iou: float
    """The lowest mean IoU of a stream, with the reference's masks as truth. Comparisons on other
    machines are as short, and a class with few pixels counts there as much as any other."""
    worst_iou: float
    """The lowest IoU of a class, in one stream or in all streams together."""


class Judge:
    """The reference's masks of the footage, which other bundles' masks are compared with."""

    def __init__(self, bundle: Bundle, footage: Footage, threads: int, advance: Advance) -> None:
        self._footage, self._threads = footage, threads
        self._classes = len(bundle.manifest.classes)
        self._expected = self._masks(bundle.path, None, advance)
        self._mean_iou = self._labelled_iou(self._expected)

    def score(self, path: Path, precision: str, advance: Advance) -> Score:
        """The score of the bundle at `path`."""
        found = self._masks(path, precision, advance)
        streams = [self._confusion(*masks) for masks in zip(found, self._expected, strict=True)]
        whole = ConfusionMatrix(self._classes)
        whole.counts = np.sum([stream.counts for stream in streams], axis=0)
        agreement = whole.pixel_accuracy
        loss = 1 - agreement
        if self._footage.labelled:
            loss = self._mean_iou - self._labelled_iou(found)
        return Score(
            100 * loss,
            agreement,
            min(stream.mean_iou for stream in streams),
            min(float(part.iou[part.shares >= WORST_SHARE].min()) for part in (whole, *streams)),
        )

    def _confusion(self, masks: list[Mask], expected: list[Mask]) -> ConfusionMatrix:
        confusion = ConfusionMatrix(self._classes)
        for mask, truth in zip(masks, expected, strict=True):
            confusion.add(mask, truth)
        return confusion

    def _masks(self, path: Path, precision: str | None, advance: Advance) -> list[list[Mask]]:
        found: list[list[Mask]] = []
        with Stream(path, "onnxruntime:cpu", precision=precision, threads=self._threads) as stream:
            for shown in self._footage.streams:
                stream.reset()
                found.append([])
                for frame in shown:
                    found[-1].append(stream(frame.image))
                    advance()
        return found

    def _labelled_iou(self, masks: list[list[Mask]]) -> float:
        """Mean IoU with the footage's labels."""
        confusion = ConfusionMatrix(self._classes)
        for stream, shown in zip(masks, self._footage.streams, strict=True):
            for mask, frame in zip(stream, shown, strict=True):
                if frame.truth is not None:
                    confusion.add(mask, frame.truth)
        return confusion.mean_iou
