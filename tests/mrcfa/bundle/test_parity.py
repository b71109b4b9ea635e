"""Parity over frames, also with frames in which two tokens cannot be told apart."""

import numpy as np
import pytest

from mrcfa.bundle.manifest import Limits
from mrcfa.bundle.parity import Parity

LIMITS = Limits(largest_error=0.25, mean_error=1e-3, agreement=0.99, mean_iou=0.9, worst_iou=0.8)


def passed(errors, certain, limits=LIMITS):
    """True if all checks pass for frames with these errors; the logits' range is 1."""
    wanted = np.linspace(0, 1, 3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    parity = Parity(limits)
    for error, sure in zip(errors, certain, strict=True):
        parity.add_logits(wanted + np.float32(error), wanted, sure)
    return all(check.passed for check in parity.checks)


@pytest.mark.parametrize(
    ("errors", "certain", "same"),
    [
        ([5e-4] * 4, [True] * 4, True),
        ([2e-2, 5e-5, 5e-5, 5e-5], [False, True, True, True], True),
        ([2e-2, 5e-5, 5e-5, 5e-5], [True, True, True, True], False),
        ([2e-2, 5e-5, 5e-5, 5e-5], [True, False, False, False], False),
        ([2e-2] * 4, [False, True, True, True], False),
        ([2e-2] * 4, [False] * 4, False),
        ([0.3, 5e-5, 5e-5, 5e-5], [False, True, True, True], False),
        ([np.nan, 5e-5, 5e-5, 5e-5], [False, True, True, True], False),
    ],
)
def test_only_a_frame_whose_tokens_the_precision_cannot_tell_apart_may_err_more(
    errors, certain, same
):
    assert passed(errors, certain) is same
