"""A camera that outruns the backend, by a clock that runs only as far as the test lets it."""

import threading
import weakref
from fractions import Fraction

import numpy as np
import pytest
from network_camera import network_camera

from mrcfa.model.input_format import RGB
from mrcfa.video.feed import Feed, take_round
from mrcfa.video.latency import Latencies
from mrcfa.video.overlay import Renderer, Style
from mrcfa.video.rounds import Sequential
from mrcfa.video.segment import Input, segment
from mrcfa.video.session import Session
from mrcfa.video.sources import Frame, Source, open_source
from mrcfa.video.style import Look

MASKS = Renderer(Style.MASK, ("any",), np.zeros((1, 3), np.uint8))
PATIENCE_S = 60  # of real time, for a thread that should be there at once


class Clock:
    """Simulated seconds. They pass when the backend works, and the camera keeps up with them."""

    def __init__(self):
        self.now = Fraction(0)
        self._turn = threading.Condition()
        self._due = {}

    def __call__(self):
        return float(self.now)

    def sleep_until(self, due, who):
        """Wait as a camera: until it is time, or for ever if nobody works any more."""
        with self._turn:
            self._due[who] = due
            self._turn.notify_all()
            assert self._turn.wait_for(lambda: self.now >= due, PATIENCE_S)

    def leave(self, who):
        with self._turn:
            self._due[who] = None
            self._turn.notify_all()

    def expect(self, who):
        self._due[who] = Fraction(-1)

    def work(self, seconds):
        """Let time pass for the backend, until all cameras have given what is due."""
        with self._turn:
            self.now += seconds
            self._turn.notify_all()
            assert self._turn.wait_for(self._all_given, PATIENCE_S)

    def _all_given(self):
        return all(due is None or due > self.now for due in self._due.values())


class Camera(Source):
    live = True

    def __init__(self, clock, rate, frames):
        super().__init__("the camera", Fraction(rate), None)
        self.clock, self.frames, self.alive, self.most = clock, frames, 0, 0
        clock.expect(self)

    def __iter__(self):
        for number in range(self.frames):
            self.clock.sleep_until(number / self.rate, self)
            yield Frame(f"{number:06d}", self._image())
        self.clock.leave(self)

    def _image(self):
        image = np.zeros((4, 6, 3), np.uint8)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(image, self._gone)
        return image

    def _gone(self):
        self.alive -= 1


class Blind:
    """Sees the same class everywhere."""

    classes, palette, input = ("any",), np.zeros((1, 3), np.uint8), RGB

    def __call__(self, frame):
        return np.zeros(frame.shape[:2], np.uint8)

    def reset(self):
        pass


class Backend(Blind):
    """Takes simulated time for each frame, once all masks so far are written."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.given, self.written = clock, seconds, 0, 0
        self._turn = threading.Condition()

    def __call__(self, frame):
        with self._turn:
            assert self._turn.wait_for(lambda: self.written == self.given, PATIENCE_S)
        self.clock.work(self.seconds)
        self.given += 1
        return super().__call__(frame)

    def wrote(self):
        with self._turn:
            self.written += 1
            self._turn.notify_all()


def outrun(frames):
    """30 frames a second against a backend of three."""
    clock = Clock()
    camera, backend = Camera(clock, 30, frames), Backend(clock, Fraction(1, 3))
    names = []
    add = Latencies.add

    def added(self, seconds):
        add(self, seconds)
        backend.wrote()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Latencies, "add", added)
        one = Input(camera, MASKS, lambda name, _: names.append(int(name)), newest=True)
        (tally,) = segment([one], Sequential([backend]), clock=clock).tallies
    return camera, tally, names


def test_a_camera_that_outruns_the_backend_costs_neither_memory_nor_latency():
    camera, tally, names = outrun(900)
    # Frame 0 is taken at once; after that every tenth is the newest when the backend is free.
    assert names == [0, *range(10, 900, 10), 899]
    assert tally.frames == len(names) == 91
    assert tally.dropped == 900 - 91
    assert tally.latency.percentile_ms(100) <= 2 * 1000 / 3
    assert camera.most <= 8  # frames in memory, wherever they wait


class Burst(Source):
    """A live source whose frames are all there at once."""

    live = True

    def __iter__(self):
        for number in range(60):
            yield Frame(f"{number:06d}", np.zeros((4, 6, 3), np.uint8))


@pytest.mark.parametrize("every_frame", [True, False])
def test_every_frame_of_a_live_source_may_be_asked_for(every_frame, tmp_path):
    source, place = Burst("a burst", Fraction(30), None), str(tmp_path / "a.npz")
    blind = Blind()
    done = Session(blind, Sequential([blind])).run(
        [source], [place], Look(), every_frame=every_frame
    )
    (tally,) = done.tallies
    assert tally.frames + tally.dropped == 60
    with np.load(place) as saved:
        names = [name for name in saved if name.isdecimal()]
    assert len(names) == tally.frames == len(tally.latency)
    assert names[-1] == "000059"
    assert tally.dropped == 0 or not every_frame


def test_a_network_camera_has_no_length_and_so_is_live():
    with network_camera(4) as url:
        source = open_source(url)
        assert source.live
        assert len(list(source)) == 4


def test_the_newest_item_replaces_the_one_that_waits():
    given, taken = threading.Semaphore(0), threading.Semaphore(0)

    def numbers():
        for number in range(7):
            yield number
            given.release()
            if number in (3, 5):
                assert taken.acquire(timeout=PATIENCE_S)

    feed = Feed(numbers(), newest=True)
    found = []
    for until in (4, 2):
        for _ in range(until):
            assert given.acquire(timeout=PATIENCE_S)
        found.append(take_round([feed], True, threading.Event())[0].item)
        taken.release()
    assert given.acquire(timeout=PATIENCE_S)
    found.append(take_round([feed], True, threading.Event())[0].item)
    assert found == [3, 5, 6]
    assert feed.dropped == 4
    assert take_round([feed], True, threading.Event()) == {}
    feed.abandon()
    assert len(found) + feed.dropped == 7


def test_what_waits_when_a_live_feed_is_left_counts_as_dropped():
    given, left = threading.Event(), threading.Event()

    def numbers():
        yield 0
        given.set()
        left.wait(PATIENCE_S)

    feed = Feed(numbers(), newest=True)
    assert given.wait(PATIENCE_S)
    left.set()
    feed.abandon()
    assert feed.dropped == 1


def test_percentiles_are_exact_to_one_per_cent_in_little_memory():
    latencies = Latencies()
    seconds = np.random.default_rng(0).gamma(2, 0.05, 20_000)
    for each in seconds:
        latencies.add(float(each))
    for percent in (50, 99):
        exact = np.percentile(seconds, percent, method="inverted_cdf") * 1e3
        assert exact <= latencies.percentile_ms(percent) <= 1.01 * exact
    assert len(latencies._bins) < 2000
    assert str(latencies).startswith("latency p50 ")
    assert Latencies().percentile_ms(50) == 0
