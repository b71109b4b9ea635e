"""Histograms against the numbers that they were filled with."""

import numpy as np
import pytest
from naming import naming

from mrcfa.errors import Unsupported
from mrcfa.export.quantization.calibration import BINS, Histogram, from_bytes, ranges, to_bytes
from mrcfa.export.quantization.choices import Method


def filled(*arrays):
    histogram = Histogram()
    for array in arrays:
        histogram.add(np.asarray(array, np.float32))
    return histogram


@pytest.fixture
def bell():
    """A histogram of numbers that are distributed normally, and of one far from them."""
    numbers = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    return filled(numbers, [40.0])


def test_a_histogram_counts_every_number_however_its_range_grows():
    arrays = [np.full(1000, 10.0**power) for power in range(-6, 5)]
    histogram = filled(*arrays)
    assert histogram.counts.shape == (BINS,)
    assert histogram.counts.sum() == 11_000
    assert histogram.largest == 10_000
    width = histogram.top / BINS
    in_first_bin = sum(10.0**power < width for power in range(-6, 5))
    assert histogram.counts[0] == 1000 * in_first_bin


def test_a_frame_of_zeros_before_all_others_changes_no_range():
    numbers = np.random.default_rng(1).normal(size=10_000)
    late, early = filled(np.zeros(10), numbers), filled(numbers, np.zeros(10))
    for method in Method:
        assert ranges({"x": late}, method) == pytest.approx(ranges({"x": early}, method))


def test_minmax_ends_at_the_largest_number_and_the_others_leave_outliers_out(bell):
    found = {method: ranges({"x": bell}, method)["x"] for method in Method}
    assert found[Method.MINMAX] == 40
    assert 3.5 < found[Method.PERCENTILE] < 4.5  # one normal number in ten thousand is above 3.9
    assert 2 < found[Method.ENTROPY] < 20


def test_what_is_no_number_is_refused():
    with pytest.raises(Unsupported, match=naming("FP16")):
        filled([1.0, np.inf])


def test_histograms_are_the_same_after_they_were_kept(bell):
    found, streams = from_bytes(to_bytes({"a": bell, "b": filled([1.0])}, 3))
    assert streams == 3
    for method in Method:
        assert ranges(found, method) == ranges({"a": bell, "b": filled([1.0])}, method)
