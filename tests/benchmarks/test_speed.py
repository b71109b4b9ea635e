import numpy as np

from benchmarks.speed import Speed, Stopwatch, ratio
from mrcfa.backends import Backend


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


class Counting(Backend):
    """Answers at once, and remembers how many frames it saw."""

    name, seen = "counting", 0

    def start(self):
        return 0

    def timed_step(self, image, state):
        self.seen += 1
        return {"mask": image}, state, {"encoder": 0.5}


def test_a_gpu_is_measured_without_pauses_after_a_stretch_of_load():
    backend = Counting()
    speed = Stopwatch(backend).back_to_back([np.zeros(1, np.uint8)], frames=50, load_s=0.05)
    assert len(speed.seconds) == len(speed.parts["encoder"]) == 50
    assert backend.seen > 60  # the load is not counted
    assert (
        Stopwatch(backend).back_to_back([np.zeros(1, np.uint8)], 3, 0.0).part_ms("encoder") == 500
    )
