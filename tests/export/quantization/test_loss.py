"""The score of a candidate's masks against the reference's."""

from contextlib import nullcontext

import numpy as np
import pytest

import mrcfa.export.quantization.loss as loss
from mrcfa.bundle import Bundle
from mrcfa.export.quantization.footage import Footage, FootageFrame

SIZE = (96, 160)


class Shower:
    """A stream with given masks: frame n has `masks[n]`."""

    def __init__(self, masks):
        self._masks = masks

    def reset(self):
        pass

    def __call__(self, image):
        return self._masks[image[0, 0, 0]]


@pytest.fixture
def score(bundle, monkeypatch):
    """`score(wanted, found)`: the score of streams of masks, against those of the reference."""

    def scored(wanted, found):
        numbers = iter(range(255))
        streams = [
            [FootageFrame(np.full((*SIZE, 3), next(numbers), np.uint8), None) for _ in stream]
            for stream in wanted
        ]
        masks = {
            None: [mask for stream in wanted for mask in stream],
            "int8": [mask for stream in found for mask in stream],
        }
        monkeypatch.setattr(
            loss,
            "Stream",
            lambda path, backend, precision, threads: nullcontext(Shower(masks[precision])),
        )
        path = bundle("b0")
        judge = loss.Judge(Bundle.open(path), Footage("", streams), 1, lambda: None)
        return judge.score(path, "int8", lambda: None)

    return scored


def test_a_class_that_one_stream_hardly_shows_counts_in_the_mean_and_not_in_the_worst(score):
    ground, speck, half = (np.zeros(SIZE, np.uint8) for _ in range(3))
    speck[0, :3] = 5
    half[: SIZE[0] // 2] = 5
    found = score([[speck], [half]], [[ground], [half]])
    lost = 3 / (SIZE[0] * SIZE[1])
    assert found.agreement == pytest.approx(1 - lost / 2)
    assert found.loss == pytest.approx(100 * lost / 2)
    assert found.mean_iou == pytest.approx((1 - lost) / 2)  # of the first stream alone
    shown = SIZE[0] * SIZE[1] / 2
    assert found.worst_iou == pytest.approx(shown / (shown + 3))  # of both
