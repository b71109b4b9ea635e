import numpy as np

from mrcfa.benchmarks.parity import Comparison
from mrcfa.export.variants import VARIANTS


def test_a_class_of_few_pixels_counts_in_the_mean_and_the_lowest_says_that_it_does_not():
    wanted = np.zeros((40, 40), np.uint8)
    wanted[20:] = 1
    wanted[0, :4] = 2  # 0.25 % of the pixels
    compared = Comparison(VARIANTS["fp16"].limits, ["road", "sky", "street_sign"])
    compared.add({"mask": np.where(wanted == 2, 0, wanted)}, {"mask": wanted})
    _, mean, lowest = compared.checks
    assert mean.value < 0.67
    assert lowest.value > 0.99
    assert "0.5% of the pixels (road)" in lowest.name
