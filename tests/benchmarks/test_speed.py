import numpy as np

import mrcfa.benchmarks.speed
from mrcfa.backends import Backend
from mrcfa.benchmarks.parity import pipelined_check
from mrcfa.benchmarks.speed import Speed, Stopwatch, ratio, two_in_flight


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


class Divided(Counting):
    """A step takes a second on its clock, and two if its parts are measured."""

    def __init__(self):
        self.now, self.whole = 0.0, 0

    def step(self, image, state):
        self.now += 1.0
        self.whole += 1
        return {"mask": image}, state

    def timed_step(self, image, state):
        self.now += 2.0
        return super().timed_step(image, state)


def test_a_gpu_is_measured_after_a_load_and_its_parts_in_a_pass_of_their_own(
    monkeypatch,
):
    backend = Divided()
    monkeypatch.setattr(mrcfa.benchmarks.speed, "perf_counter", lambda: backend.now)
    speed = Stopwatch(backend).back_to_back([np.zeros(1, np.uint8)], frames=50, load_s=10.0)
    assert speed.seconds.tolist() == [1.0] * 50
    assert speed.fps == 1
    assert speed.parts["encoder"].tolist() == [0.5] * 50
    assert (backend.whole, backend.seen) == (10 + 50, 50)


class Delayed(Counting):
    """Two frames may be begun; each answer is ready when the next frame is, two frames late."""

    def __init__(self, forgets=False):
        self.begun, self.most, self.forgets = 0, 0, forgets

    def submit(self, image, state):
        self.begun += 1
        self.most = max(self.most, self.begun)
        shared = self.forgets and self.begun == 2
        return {"mask": np.zeros_like(image) if shared else image}, state

    def result(self, begun):
        self.begun -= 1
        return begun


def test_two_frames_in_flight_have_a_latency_and_a_pace():
    backend = Delayed()
    speed = two_in_flight(backend, [np.ones(1, np.uint8)], frames=20, load_s=0.0)
    assert (len(speed.seconds), len(speed.intervals)) == (20, 20)
    assert (backend.begun, backend.most) == (0, 2)
    # A frame is in flight while the one before it is finished: on average for two intervals.
    assert speed.seconds.sum() > speed.intervals.sum()
    assert speed.fps == 1 / speed.intervals.mean()
    assert "interval_p50_ms" in speed.to_json()


def test_frames_in_flight_that_disturb_each_other_are_found():
    images = [np.ones(1, np.uint8)] * 3
    assert pipelined_check(Delayed(), images, 9).passed
    assert not pipelined_check(Delayed(forgets=True), images, 9).passed
