"""The paper's metrics, updated frame by frame: IoU, and video consistency.

They need numpy only, and their memory does not grow with the length of a video:

    confusion, consistency = ConfusionMatrix(classes=124), VideoConsistency()
    for prediction, truth in frames:  # uint8 (h, w); 255 in the truth is ignored
        confusion.add(prediction, truth)
        consistency.add(prediction, truth)
    print(confusion.mean_iou, consistency.score(8))
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mrcfa.data.labels import IGNORED
from mrcfa.errors import InvalidValue, Mismatch

WINDOWS = (8, 16)
"""The paper's window lengths n of mVC_n, in frames."""

LabelMap = NDArray[np.integer]
Scores = NDArray[np.float64]


class ConfusionMatrix:
    """Pixel counts (classes, classes); rows are true classes, columns predicted ones."""

    def __init__(self, classes: int) -> None:
        self.counts = np.zeros((classes, classes), np.int64)

    def add(self, prediction: LabelMap, truth: LabelMap) -> None:
        """Count the pixels of one or more frames, except where the truth is ignored."""
        _check_shapes(prediction, truth)
        classes = len(self.counts)
        labelled = truth != IGNORED
        rows, columns = truth[labelled].astype(np.intp), prediction[labelled]
        for labels, name in ((rows, "truth"), (columns, "prediction")):
            if labels.size and not 0 <= labels.min() <= labels.max() < classes:
                raise InvalidValue(
                    f"the {name} has labels from {labels.min()} to {labels.max()}, but classes are "
                    f"0 to {classes - 1}; mark pixels without ground truth with {IGNORED}"
                )
        flat = np.bincount(rows * classes + columns, minlength=classes**2)
        self.counts += flat.reshape(classes, classes)

    @property
    def iou(self) -> Scores:
        """Intersection over union per class, (classes,); NaN for a class that never occurs."""
        hits = self.counts.diagonal()
        return _ratio(hits, self.counts.sum(0) + self.counts.sum(1) - hits)

    @property
    def shares(self) -> Scores:
        """Share of the labelled pixels per true class, (classes,)."""
        return _ratio(self.counts.sum(1), self.counts.sum())

    @property
    def mean_iou(self) -> float:
        """Mean IoU over the classes that occur in the truth or in the prediction."""
        return mean(self.iou)

    @property
    def weighted_iou(self) -> float:
        """Mean IoU over classes, weighted by their shares of the truth."""
        if not self.counts.any():
            return float("nan")
        return float(np.nansum(self.iou * self.shares))

    @property
    def pixel_accuracy(self) -> float:
        return float(_ratio(self.counts.trace(), self.counts.sum()))


class VideoConsistency:
    """Video consistency VC_n of one video: are predictions constant where the truth is?

    A window is n consecutive frames. Its score is the share of pixels with one constant predicted
    class among the pixels with one constant true class. As in the benchmark's script, the predicted
    class need not be the true one, because IoU measures that.

    The state is two maps of how long each pixel has kept its label, whatever the number of lengths.
    """

    def __init__(self, lengths: Sequence[int] = WINDOWS, count_ignored: bool = False) -> None:
        """Start a video; `count_ignored` counts ignored pixels as a class, as the public script."""
        self._windows: dict[int, list[float]] = {length: [] for length in lengths}
        self._count_ignored = count_ignored
        self._frames = 0
        self._truth = _Runs()
        self._prediction = _Runs()

    def add(self, prediction: LabelMap, truth: LabelMap) -> None:
        """Append the video's next frame."""
        _check_shapes(prediction, truth)
        self._truth.add(truth)
        self._prediction.add(prediction)
        self._frames += 1
        labelled = self._count_ignored | (truth != IGNORED)
        for length, scores in self._windows.items():
            if self._frames >= length:
                constant = labelled & (self._truth.length >= length)
                both = constant & (self._prediction.length >= length)
                scores.append(float(_ratio(np.count_nonzero(both), np.count_nonzero(constant))))

    def windows(self, length: int) -> Scores:
        """Scores of the C−n+1 windows of C frames; NaN where no true pixel is constant."""
        return np.array(self._windows[length], np.float64)

    def score(self, length: int) -> float:
        """VC_n, the mean over the windows; NaN for a video shorter than one window."""
        return mean(self.windows(length))


def mean_consistency(videos: Sequence[Scores]) -> float:
    """The paper's mVC_n from the windows of all videos: mean of windows, then mean of videos."""
    return mean(np.array([mean(windows) for windows in videos], np.float64))


def pooled_consistency(videos: Sequence[Scores], length: int) -> float:
    """The mVC_n of the benchmark's public script, from the windows of all videos.

    For every n the script leaves out videos of at most 16 frames and the last window of each video,
    and takes one mean over all windows.
    """
    long_enough = [windows[:-1] for windows in videos if len(windows) + length - 1 > 16]
    return mean(np.concatenate(long_enough)) if long_enough else float("nan")


def mean(scores: Scores) -> float:
    """Mean of the defined scores; NaN, without a warning, if there are none."""
    defined = scores[~np.isnan(scores)]
    return float(defined.mean()) if defined.size else float("nan")


class _Runs:
    """Number of frames for which each pixel has kept its label, the current one included."""

    def __init__(self) -> None:
        self._last: LabelMap | None = None
        self.length: NDArray[np.int32] = np.zeros((), np.int32)

    def add(self, labels: LabelMap) -> None:
        if self._last is None:
            self.length = np.ones(labels.shape, np.int32)
        elif self._last.shape != labels.shape:
            raise Mismatch(
                f"a frame of {_size(labels)} follows one of {_size(self._last)}; "
                "consistency needs frames of one size"
            )
        else:
            self.length = np.where(labels == self._last, self.length + 1, 1)
        self._last = labels.copy()


def _check_shapes(prediction: LabelMap, truth: LabelMap) -> None:
    if prediction.shape != truth.shape:
        raise Mismatch(
            f"the prediction is {_size(prediction)}, but the truth is {_size(truth)}; "
            "resize one of them by nearest neighbour"
        )


def _size(labels: LabelMap) -> str:
    return "×".join(map(str, labels.shape))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Scores:
    """The quotient part / whole; NaN where whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.true_divide(part, whole), np.float64)
