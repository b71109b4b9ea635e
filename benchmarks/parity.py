"""Differences between a backend and the reference: in logits, in masks, and over time (drift)."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends import Arrays, Backend
from mrcfa.benchmarks.clip import LOOP, Images, looped
from mrcfa.bundle.checks import Check
from mrcfa.bundle.manifest import Limits, Output
from mrcfa.bundle.parity import Parity
from mrcfa.data.metrics import ConfusionMatrix

WORST_SHARE = 0.005
"""Smallest share of the pixels at which a class counts in the lowest IoU: one pixel more or less
would decide the IoU of a rarer class. The mean IoU counts all classes, so it may be lower."""
MARKS = (10, 100, 1000)
"""Frame numbers at which the drift check compares errors."""
DRIFT = 1.1
"""Largest allowed ratio of a later mark's error to the first mark's error."""
NOISE = 0.1
"""Share of parity's limit below which errors always pass the drift check."""

Mask = NDArray[np.uint8]


class Comparison:
    """Accumulates the differences between one backend and the reference on the same frames."""

    def __init__(self, limits: Limits, classes: Sequence[str]) -> None:
        self._limits, self._classes = limits, classes
        self._parity = Parity(limits)
        self._confusion = ConfusionMatrix(len(classes))

    def add(self, outputs: Arrays, wanted: Arrays) -> None:
        if "logits" in outputs:
            self._parity.add_logits(outputs["logits"], wanted["logits"])
        mask, wanted_mask = mask_of(outputs), mask_of(wanted)
        self._parity.add_masks(mask, wanted_mask)
        self._confusion.add(mask, wanted_mask)

    @property
    def checks(self) -> list[Check]:
        iou = self._confusion.iou
        counted = np.where(self._confusion.shares >= WORST_SHARE, iou, np.inf)
        worst = int(counted.argmin())
        name = self._classes[worst].replace("_", " ")
        return [
            *self._parity.checks,
            Check("mean IoU of masks", self._confusion.mean_iou, ">=", self._limits.mean_iou),
            Check(
                f"lowest IoU of classes with {WORST_SHARE:.1%} of the pixels ({name})",
                float(counted[worst]),
                ">=",
                self._limits.worst_iou,
            ),
        ]


def mask_of(outputs: Arrays) -> Mask:
    """The mask, or the argmax of the logits on their own grid."""
    if "mask" in outputs:
        return outputs["mask"]
    return outputs["logits"].argmax(axis=0).astype(np.uint8)


def marks(depth: int, last: int) -> list[int]:
    """Marks up to frame `last` whose references, up to `depth` frames back, all exist."""
    return [mark for mark in MARKS if depth <= mark <= last]


def expected(reference: Backend, images: Images, depth: int) -> Arrays:
    """The reference's outputs at every mark, computed by a stream of `depth` + 1 frames.

    The model looks at most `depth` frames back, so older frames do not matter, and all marks of a
    looped clip show the same images.
    """
    state = reference.start()
    for number in range(MARKS[0] - depth, MARKS[0] + 1):
        outputs, state = reference.step(images[number % LOOP], state)
    reference.finish(state)
    return outputs


def drift(
    backend: Backend,
    wanted: Arrays,
    images: Images,
    marks: Sequence[int],
    show: Callable[[float], None],
) -> dict[int, float]:
    """Mark -> error in one long stream; a state that accumulates errors would make it grow."""
    errors = {}
    state = backend.start()
    for number, image in enumerate(looped(images[:LOOP], marks[-1] + 1)):
        outputs, state = backend.step(image, state)
        if number in marks:
            errors[number] = error(outputs, wanted)
        show(number / marks[-1])
    backend.finish(state)
    return errors


def pipelined_check(backend: Backend, images: Images, frames: int) -> Check:
    """Check that two frames in flight give the outputs of one at a time, bit for bit."""
    plain, state = [], backend.start()
    for image in looped(images, frames):
        outputs, state = backend.step(image, state)
        plain.append(outputs)
    backend.finish(state)
    begun, found, state = deque[Any](), [], backend.start()
    for image in looped(images, frames):
        frame, state = backend.submit(image, state)
        begun.append(frame)
        if len(begun) == 2:
            found.append(backend.result(begun.popleft()))
    found.append(backend.result(begun.popleft()))
    backend.finish(state)
    wrong = sum(error(*pair) > 0 for pair in zip(found, plain, strict=True))
    return Check("frames that differ from one at a time", wrong, "<=", 0)


def error(outputs: Arrays, wanted: Arrays) -> float:
    """Largest error of logits as a share of their range, or share of mask pixels that differ."""
    if "logits" in outputs:
        found = outputs["logits"].astype(np.float32)
        return float(np.abs(found - wanted["logits"]).max() / np.ptp(wanted["logits"]))
    return float((outputs["mask"] != wanted["mask"]).mean())


def drift_checks(errors: Mapping[int, float], limits: Limits, output: Output) -> list[Check]:
    """Checks of the first mark against parity's limit, and of later marks against the first."""
    allowed, what = 1 - limits.agreement, "pixels that differ"
    if output is Output.LOGITS:
        allowed, what = limits.largest_error, "largest logit error / range"
    first, *later = errors
    limit = max(DRIFT * errors[first], NOISE * allowed)
    return [
        Check(f"{what} at frame {first}", errors[first], "<=", allowed),
        *(Check(f"{what} at frame {mark}", errors[mark], "<=", limit) for mark in later),
    ]
