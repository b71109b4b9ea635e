import numpy as np

from benchmarks.speed import Speed, ratio


def test_the_ratio_of_medians_lies_in_its_interval_and_ignores_an_outlier():
    noise = np.random.default_rng(1)
    below = 0.1 * noise.uniform(0.95, 1.05, 40)
    above = 0.8 * noise.uniform(0.95, 1.05, 40)
    above[7] = 30
    found = ratio(above, below)
    assert 7.5 < found.low < found.value < found.high < 8.5


def test_what_slows_a_whole_round_down_leaves_the_ratio_exact():
    rounds = np.linspace(1, 3, 25)
    found = ratio(6 * rounds, 2 * rounds)
    assert (round(found.low, 9), round(found.value, 9), round(found.high, 9)) == (3, 3, 3)
    assert str(found) == "3.00 (3.00–3.00)"


def test_percentiles_are_in_milliseconds_and_fps_is_throughput():
    speed = Speed(np.arange(1, 101) / 1000, {"encoder": np.full(100, 0.02)})
    assert speed.percentile_ms(50) == 50.5
    assert round(speed.fps, 2) == 19.8
    assert speed.part_ms("encoder") == 20
    assert speed.to_json().keys() == {"p50_ms", "p90_ms", "p99_ms", "mean_ms", "fps", "encoder_ms"}
