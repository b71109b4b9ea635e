"""Ranges of tensors, from histograms that are filled frame by frame.

No tensor is kept: a histogram has the same size after one frame and after a thousand. ONNX
Runtime's calibration decides from the histograms where a range ends.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.quantization.calibrate import HistogramCollector

from mrcfa.errors import Unsupported
from mrcfa.export.quantization.choices import Method
from mrcfa.export.quantization.graphs import Image, Pair

BINS = 1024
LEVELS = 255
"""Numbers of a symmetric 8-bit format, which the entropy method distributes."""
PERCENTILE = 99.99


@dataclass
class Histogram:
    """Counts of absolute values in bins from 0 to `top`, a power of two that grows when it must."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    top: float = 2.0**-14
    largest: float = 0.0

    def add(self, values: NDArray[Any]) -> None:
        absolute = np.abs(values.astype(np.float32).ravel())
        largest = float(absolute.max())
        if not np.isfinite(largest):
            raise Unsupported("a tensor is not a number in FP16; such a model cannot be calibrated")
        self.largest = max(self.largest, largest)
        while self.top < largest:
            self.counts = np.concatenate(
                [self.counts.reshape(-1, 2).sum(axis=1), np.zeros(BINS // 2, np.int64)]
            )
            self.top *= 2
        self.counts += np.histogram(absolute, BINS, range=(0.0, self.top))[0]


def collect(
    pair: Pair,
    tensors: Mapping[str, Sequence[str]],
    histograms: dict[str, Histogram],
    images: Iterable[Image],
    advance: Callable[[], None],
) -> None:
    """Add the tensors of one stream to the histograms, from its first frame on.

    So the decoder reads real memories. Both graphs may have a tensor `view`, so the histogram of
    the encoder's is `encoder:view`.
    """
    pair.reset()
    for image in images:
        features = pair.encode(image)
        found = {"encoder": features, "decoder": pair.decode(features)}
        for part, names in tensors.items():
            for name in names:
                histograms.setdefault(f"{part}:{name}", Histogram()).add(found[part][name])
        advance()


def ranges(histograms: Mapping[str, Histogram], method: Method) -> dict[str, float]:
    """The largest number of each tensor that 8 bits represent; larger ones are clipped to it."""
    if method is Method.MINMAX:
        return {name: histogram.largest for name, histogram in histograms.items()}
    collector = HistogramCollector(method.value, True, BINS, LEVELS, PERCENTILE, "same")
    described = _mirrored if method is Method.ENTROPY else _one_sided
    collector.histogram_dict = {
        name: described(histogram) for name, histogram in histograms.items()
    }
    with redirect_stdout(io.StringIO()):  # it prints every step
        found = collector.compute_collection_result()
    return {name: float(max(abs(low), abs(high))) for name, (low, high, *_) in found.items()}


def to_bytes(histograms: Mapping[str, Histogram], streams: int) -> bytes:
    """A file of histograms and the number of streams in them."""
    arrays: dict[str, Any] = {
        "names": np.array(list(histograms)),
        "counts": np.stack([histogram.counts for histogram in histograms.values()]),
        "ends": np.array([(histogram.top, histogram.largest) for histogram in histograms.values()]),
        "streams": np.array(streams),
    }
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def from_bytes(content: bytes) -> tuple[dict[str, Histogram], int]:
    """The histograms of such a file, and the number of streams in them."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        rows = zip(file["names"], file["counts"], file["ends"], strict=True)
        found = {
            str(name): Histogram(counts, float(top), float(largest))
            for name, counts, (top, largest) in rows
        }
        return found, int(file["streams"])


def _one_sided(histogram: Histogram) -> tuple[Any, ...]:
    edges = np.linspace(0, histogram.top, BINS + 1, dtype=np.float32)
    end = np.float32(histogram.largest)
    return histogram.counts, edges, -end, end


def _mirrored(histogram: Histogram) -> tuple[Any, ...]:
    """The histogram of a distribution around 0: the range is symmetric anyway."""
    edges = np.linspace(-histogram.top, histogram.top, 2 * BINS + 1, dtype=np.float32)
    end = np.float32(histogram.largest)
    both = np.concatenate([histogram.counts[::-1], histogram.counts])
    return both, edges, -end, end, np.float32(histogram.top)
