"""The paper's metrics, fed frame by frame: IoU from a confusion matrix, and video consistency.

Everything is numpy, and memory does not grow with the length of a video:

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

LabelMap = NDArray[np.integer]
Scores = NDArray[np.float64]


class ConfusionMatrix:
    """Pixel counts (classes, classes): the row is the true class, the column the predicted one."""

    def __init__(self, classes: int) -> None:
        self.counts = np.zeros((classes, classes), np.int64)

    def add(self, prediction: LabelMap, truth: LabelMap) -> None:
        """Count one frame, or any number of them, wherever the truth is not ignored."""
        _check_shapes(prediction, truth)
        classes = len(self.counts)
        labelled = truth != IGNORED
        rows, columns = truth[labelled].astype(np.intp), prediction[labelled]
        for labels, what in ((rows, "truth"), (columns, "prediction")):
            if labels.size and not 0 <= labels.min() <= labels.max() < classes:
                raise InvalidValue(
                    f"the {what} has labels from {labels.min()} to {labels.max()}, but classes are "
                    f"0 to {classes - 1}; mark pixels without ground truth with {IGNORED}"
                )
        flat = np.bincount(rows * classes + columns, minlength=classes**2)
        self.counts += flat.reshape(classes, classes)

    @property
    def iou(self) -> Scores:
        """Intersection over union, (classes,); NaN for a class in neither truth nor prediction."""
        hits = self.counts.diagonal()
        return _ratio(hits, self.counts.sum(0) + self.counts.sum(1) - hits)

    @property
    def shares(self) -> Scores:
        """Which part of the labelled pixels each class has in the truth, (classes,)."""
        return _ratio(self.counts.sum(1), self.counts.sum())

    @property
    def mean_iou(self) -> float:
        """Mean over the classes that occur in the truth or in the prediction."""
        return mean(self.iou)

    @property
    def weighted_iou(self) -> float:
        """Mean over classes, each weighted by its share of the truth."""
        if not self.counts.any():
            return float("nan")
        return float(np.nansum(self.iou * self.shares))

    @property
    def pixel_accuracy(self) -> float:
        return float(_ratio(self.counts.trace(), self.counts.sum()))


class VideoConsistency:
    """VC_n of one video: do predictions hold still where the ground truth does?

    A window is n consecutive frames. Its score is the share of pixels with one constant predicted
    class, among the pixels with one constant true class. As in the benchmark's script, the
    predicted class need not be the true one: right or wrong is what IoU measures.

    Only how long each pixel has kept its label is remembered, so all n cost the same two maps.
    """

    def __init__(self, lengths: Sequence[int] = (8, 16), count_ignored: bool = False) -> None:
        """`count_ignored` treats ignored pixels as one more class, as the public script does."""
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
                still = labelled & (self._truth.length >= length)
                held = still & (self._prediction.length >= length)
                scores.append(float(_ratio(np.count_nonzero(held), np.count_nonzero(still))))

    def windows(self, length: int) -> Scores:
        """Scores of the C−n+1 windows; NaN where no true pixel held still."""
        return np.array(self._windows[length], np.float64)

    def score(self, length: int) -> float:
        """VC_n: the mean over the windows; NaN for a video shorter than one window."""
        return mean(self.windows(length))


def mean_consistency(videos: Sequence[Scores]) -> float:
    """The paper's mVC_n from every video's windows: mean of windows, then mean of videos."""
    return mean(np.array([mean(windows) for windows in videos], np.float64))


def pooled_consistency(videos: Sequence[Scores], length: int) -> float:
    """mVC_n as the benchmark's public script pools it.

    The script leaves out videos of at most 16 frames for every n, forgets each video's last
    window, and takes one mean over the windows of all videos.
    """
    long_enough = [windows[:-1] for windows in videos if len(windows) + length - 1 > 16]
    return mean(np.concatenate(long_enough)) if long_enough else float("nan")


def mean(scores: Scores) -> float:
    """The mean of the scores that are defined; NaN, without a warning, if none is."""
    defined = scores[~np.isnan(scores)]
    return float(defined.mean()) if defined.size else float("nan")


class _Runs:
    """For how many frames each pixel has kept its label, this one included."""

    def __init__(self) -> None:
        self._last: LabelMap | None = None
        self.length: NDArray[np.int32] = np.zeros((), np.int32)

    def add(self, labels: LabelMap) -> None:
        if self._last is None:
            self.length = np.ones(labels.shape, np.int32)
        elif self._last.shape != labels.shape:
            raise Mismatch(
                f"a frame of {_size(labels)} follows one of {_size(self._last)}; "
                "consistency is defined for the frames of one video, all of one size"
            )
        else:
            self.length = np.where(labels == self._last, self.length + 1, 1)
        self._last = labels.copy()


def _check_shapes(prediction: LabelMap, truth: LabelMap) -> None:
    if prediction.shape != truth.shape:
        raise Mismatch(
            f"the prediction is {_size(prediction)} but the truth {_size(truth)}; "
            "resize one of them first, by nearest neighbour"
        )


def _size(labels: LabelMap) -> str:
    return "×".join(map(str, labels.shape))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Scores:
    """part / whole, NaN where whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.true_divide(part, whole), np.float64)
