"""Cameras that fail and come back, without waiting for any of it."""

import threading
from fractions import Fraction

import numpy as np
import pytest
from naming import names

from mrcfa.errors import MrcfaError
from mrcfa.video.reconnection import MonitoredSource, ReconnectingSource
from mrcfa.video.rounds import Sequential
from mrcfa.video.segment import Input, segment
from mrcfa.video.sources import Frame, Source


class Camera(Source):
    """Gives some frames and ends, as the end of a cable does, with a complaint or an error."""

    live = True

    def __init__(self, frames, complaint=None, error=None):
        super().__init__("camera 0", Fraction(10), None)
        self._frames, self._complaint, self._error = frames, complaint, error

    def __iter__(self):
        for number in range(self._frames):
            yield Frame(f"{number:06d}", np.full((4, 6, 3), number, np.uint8))
        if self._error:
            raise self._error
        self.complaint = self._complaint


class Seconds:
    """A clock that runs while the camera is waited for."""

    now = 0.0

    def __call__(self):
        return self.now

    def wait(self, stopped):
        self.now += 1


def reconnecting(first, *answers, reports=None):
    """A camera that is reopened with each of the answers, and then stopped."""
    clock, left = Seconds(), list(answers)

    def reopen():
        answer = left.pop(0)
        if isinstance(answer, MrcfaError):
            raise answer
        return answer

    def wait(stopped):
        clock.wait(stopped)
        if not left:
            source.stop()

    report = (lambda *_: None) if reports is None else lambda *state: reports.append(state)
    source = ReconnectingSource(first, report, reopen, wait, clock)
    return source


def test_frames_go_on_when_the_camera_is_back_and_keep_the_time():
    gone = MrcfaError("camera 0 cannot be opened: No such device; check that it is plugged in")
    reports, cut = [], Camera(3, "camera 0 was interrupted: I/O error")
    source = reconnecting(cut, gone, gone, Camera(2), reports=reports)
    frames = list(source)
    assert [(int(frame.name), frame.segment) for frame in frames] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (30, 1),  # three seconds later, at ten frames a second
        (31, 1),
    ]
    changes = [one for one, before in zip(reports, [None, *reports], strict=False) if one != before]
    *before, (state, message) = changes
    assert before == [
        ("live", ""),
        ("lost", "camera 0 was interrupted: I/O error"),
        ("lost", str(gone)),
        ("live", ""),
    ]
    assert state == "lost"
    assert names(message, "camera 0")
    assert source.complaint is None
    assert source.live


def test_a_camera_that_fails_with_a_sentence_is_lost_and_not_the_end():
    source = reconnecting(Camera(1, error=MrcfaError("the cable was cut")), Camera(1))
    assert [frame.segment for frame in source] == [0, 1]


def test_a_bug_is_no_loss():
    with pytest.raises(ValueError, match="a bug"):
        list(reconnecting(Camera(1, error=ValueError("a bug")), Camera(1)))


def test_frame_numbers_never_go_back():
    source = reconnecting(Camera(100), Camera(5))
    numbers = [int(frame.name) for frame in source]
    assert numbers == sorted(set(numbers))


class Memory:
    """Remembers how many frames each state has seen."""

    def __init__(self):
        self.numbers = []

    def __call__(self, frame):
        self.numbers.append(self.number)
        self.number += 1
        return frame[..., 0]

    def reset(self):
        self.number = 0


@pytest.mark.parametrize("newest", [False, True])
def test_the_state_starts_anew_when_the_camera_is_back(newest):
    memory, written = Memory(), []
    one = Input(
        reconnecting(Camera(4), Camera(3)),
        lambda image, mask: mask,
        lambda name, _: written.append(int(name)),
        newest,
    )
    done = segment([one], Sequential([memory]))
    assert done.tallies[0].complaint is None
    assert done.tallies[0].cuts == 0
    if newest:  # whichever frames were taken, the last one is of the second segment
        assert written[-1] == 12
        first = next(place for place, name in enumerate(written) if name >= 10)
        assert memory.numbers[first] == 0
    else:
        assert written == [0, 1, 2, 3, 10, 11, 12]
        assert memory.numbers == [0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize(
    ("camera", "word"),
    [(Camera(2), ""), (Camera(2, "2 of 4 frames were lost"), "2 of 4 frames were lost")],
)
def test_a_recording_says_that_it_has_ended_and_how(camera, word):
    reports = []
    source = MonitoredSource(camera, lambda *state: reports.append(state))
    assert len(list(source)) == 2
    assert reports == [("live", ""), ("ended", word)]
    assert source.complaint == (word or None)


def test_waiting_ends_at_once_when_nobody_wants_the_camera_any_more():
    lost = threading.Event()
    source = ReconnectingSource(
        Camera(1), lambda state, _: state == "lost" and lost.set(), lambda: Camera(1)
    )
    frames = []
    thread = threading.Thread(target=lambda: frames.extend(source))
    source.stop()
    thread.start()
    thread.join(60)
    assert lost.is_set()
    assert len(frames) == 1
