"""The pipeline around a segmenter that is a formula: order, overlap, cuts, errors, Ctrl-C."""

import os
import signal
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from naming import names

from mrcfa.errors import MrcfaError
from mrcfa.video.feed import prefetched
from mrcfa.video.overlay import Renderer, Style
from mrcfa.video.rounds import Overlapping, Sequential
from mrcfa.video.segment import Input, in_background, segment
from mrcfa.video.sources import Frame, Source

MASKS = Renderer(Style.MASK, ("dark", "light"), np.zeros((2, 3), np.uint8))


class Threshold:
    """Class 1 where red is above 100. Remembers on which frame number each call was."""

    classes = ("dark", "light")
    palette = np.zeros((2, 3), np.uint8)

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.numbers = []

    def __call__(self, frame):
        time.sleep(self.seconds)
        self.numbers.append(self.number)
        self.number += 1
        return (frame[..., 0] > 100).astype(np.uint8)

    def reset(self):
        self.number = 0


class Pictures(Source):
    def __init__(self, images):
        super().__init__("the test", Fraction(15), None)
        self.images = images

    def __iter__(self):
        for number, image in enumerate(self.images):
            yield Frame(str(number), image)


def noise(frames, seed=0, size=(24, 32)):
    return list(np.random.default_rng(seed).integers(0, 256, (frames, *size, 3), np.uint8))


def run(source, segmenter, **options):
    written = {}
    inputs = [Input(source, MASKS, written.__setitem__)]
    return segment(inputs, Sequential([segmenter]), **options), written


def test_every_frame_is_segmented_once_and_in_order():
    images, calls = noise(20), []
    summary, written = run(Pictures(images), Threshold(), advance=calls.append)
    assert list(written) == [str(number) for number in range(20)]
    for number, image in enumerate(images):
        np.testing.assert_array_equal(written[str(number)], image[..., 0] > 100)
    assert (summary.frames, len(calls), summary.interrupted) == (20, 20, False)


def test_decoding_and_encoding_happen_while_the_backend_works():
    """Each waits for the other two: in turns none would get on."""
    images, written, seconds = noise(4), [], 0.01
    together = threading.Barrier(3, timeout=60)

    def decoded():
        for number, image in enumerate(images):
            if number == 2:
                together.wait()
            yield image

    class Meeting(Threshold):
        def __call__(self, frame):
            if self.number == 1:
                together.wait()
            return super().__call__(frame)

    def encode(name, picture):
        if name == "0":
            together.wait()
        written.append(name)

    inputs = [Input(Pictures(decoded()), MASKS, encode)]
    summary = segment(inputs, Sequential([Meeting(seconds)]))
    assert summary.tallies[0].complaint is None
    assert written == ["0", "1", "2", "3"]
    assert summary.backend_seconds >= len(images) * seconds


def test_the_state_starts_anew_with_a_run():
    segmenter = Threshold()
    run(Pictures(noise(3)), segmenter)
    run(Pictures(noise(2)), segmenter)
    assert segmenter.numbers == [0, 1, 2, 0, 1]


def scenes():
    """Two scenes that pan, each a picture wider than the frame."""
    random = np.random.default_rng(1)
    dark = random.integers(0, 90, (48, 100, 3), np.uint8)
    light = random.integers(120, 256, (48, 100, 3), np.uint8)
    return [wide[:, 2 * t : 2 * t + 64].copy() for wide in (dark, light) for t in range(5)]


@pytest.mark.parametrize(("asked", "numbers"), [(True, [*range(5)] * 2), (False, [*range(10)])])
def test_a_scene_cut_resets_the_state_if_asked_to(asked, numbers):
    segmenter = Threshold()
    summary, _ = run(Pictures(scenes()), segmenter, reset_on_cut=asked)
    assert segmenter.numbers == numbers
    assert summary.tallies[0].cuts == (1 if asked else 0)


def test_a_change_of_light_is_no_scene_cut():
    images = [np.full((48, 64, 3), 60 + 2 * t, np.uint8) for t in range(10)]
    assert run(Pictures(images), Threshold(), reset_on_cut=True)[0].tallies[0].cuts == 0


class Broken(Pictures):
    def __init__(self, images, error):
        super().__init__(images)
        self.error = error

    def __iter__(self):
        yield from super().__iter__()
        raise self.error


@pytest.mark.parametrize("broken", ["segmenter", "sink"])
def test_an_error_in_any_thread_ends_the_run_with_it(broken):
    def fail(*_):
        raise MrcfaError("broken")

    segmenter = Threshold()
    if broken == "segmenter":
        segmenter.reset = fail
    write = fail if broken == "sink" else lambda *_: None
    with pytest.raises(MrcfaError, match="broken"):
        segment([Input(Pictures(noise(9)), MASKS, write)], Sequential([segmenter]))


def test_a_source_that_ends_or_fails_lets_the_others_go_on():
    sources = [
        Pictures(noise(3)),
        Broken(noise(2), MrcfaError("the cable was cut")),
        Pictures([]),
        Broken(noise(1), ValueError("a bug")),
        Pictures(noise(12)),
    ]
    written = [[] for _ in sources]
    inputs = [
        Input(source, MASKS, lambda name, _, names=names: names.append(name))
        for source, names in zip(sources, written, strict=True)
    ]
    done = segment(inputs, Sequential([Threshold() for _ in sources]))
    assert [tally.frames for tally in done.tallies] == [3, 2, 0, 1, 12]
    assert [len(names) for names in written] == [3, 2, 0, 1, 12]
    whole, cut, nothing, bug, long = (tally.complaint for tally in done.tallies)
    assert (whole, cut, long) == (None, "the cable was cut", None)
    assert names(nothing, "the test")
    assert names(bug, "the test", "1 frame", "ValueError('a bug')")


class TwoInFlight(Threshold):
    """Keeps a mask back until it is asked for, as a GPU does."""

    def __init__(self):
        super().__init__()
        self.waiting, self.most = [], 0

    def submit(self, frame):
        self.waiting.append(super().__call__(frame))
        self.most = max(self.most, len(self.waiting))
        assert self.most <= 2

    def result(self):
        return self.waiting.pop(0)

    def reset(self):
        super().reset()
        assert not getattr(self, "waiting", []), "frames in flight would be lost"


def test_with_two_frames_in_flight_masks_come_in_order_and_none_is_kept_back():
    first, second = TwoInFlight(), TwoInFlight()
    written = [{}, {}]
    inputs = [
        Input(Pictures(scenes()), MASKS, written[0].__setitem__),
        Input(Pictures(noise(4)), MASKS, written[1].__setitem__),
    ]
    done = segment(inputs, Overlapping([first, second]), reset_on_cut=True)
    assert [tally.frames for tally in done.tallies] == [10, 4]
    assert first.numbers == [*range(5)] * 2
    for masks, images in zip(written, (scenes(), noise(4)), strict=True):
        assert list(masks) == [str(number) for number in range(len(images))]
        np.testing.assert_array_equal(
            list(masks.values()), np.stack([image[..., 0] > 100 for image in images])
        )


def test_the_last_frame_of_a_slow_source_does_not_wait_for_another_one():
    """A camera that falls silent: the mask of its last frame comes all the same."""
    seen = threading.Event()

    def silent():
        yield noise(1)[0]
        assert seen.wait(60)  # until the mask of the first frame was written

    inputs = [Input(Pictures(silent()), MASKS, lambda *_: seen.set())]
    assert segment(inputs, Overlapping([TwoInFlight()])).tallies[0].complaint is None


def test_ctrl_c_ends_the_source_and_finishes_what_was_begun():
    def endless():
        while True:
            yield noise(1)[0]

    calls = iter(range(99))

    def press(_):
        if next(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    summary, written = run(Pictures(endless()), Threshold(), advance=press)
    assert summary.interrupted
    assert len(written) == summary.frames >= 6
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_a_source_that_is_silent():
    done, woken = threading.Event(), threading.Event()

    def silent():
        yield noise(1)[0]
        done.wait(60)
        woken.set()

    def press(_):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    assert run(Pictures(silent()), Threshold(), advance=press)[0].frames == 1
    assert not woken.is_set()
    done.set()


def test_a_run_outside_the_main_thread_works():
    frames = []
    thread = threading.Thread(
        target=lambda: frames.append(run(Pictures(noise(3)), Threshold())[0].frames)
    )
    thread.start()
    thread.join()
    assert frames == [3]


def test_reading_ahead_stops_at_its_depth():
    produced = []

    def numbers():
        for number in range(100):
            produced.append(number)
            yield number

    items = prefetched(numbers(), depth=3)
    assert next(items) == 0
    time.sleep(0.2)
    assert len(produced) <= 5  # one taken, three waiting, one that waits for its place
    items.close()


def test_work_left_behind_is_done_when_the_block_ends():
    done = []
    with in_background(done.append) as put:
        for number in range(10):
            put(number)
    assert done == list(range(10))
