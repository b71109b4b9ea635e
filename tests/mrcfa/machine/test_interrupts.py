"""Signals that end a program, and how many of them count as one request."""

import os
import signal

import pytest

from mrcfa.machine import interrupts
from mrcfa.machine.interrupts import ENDING, first_interrupt, raised


@pytest.fixture(autouse=True)
def _caught(monkeypatch):
    """A signal that nobody handles fails the test instead of ending the test run."""

    def unhandled(number, _):
        raise AssertionError(f"{signal.Signals(number).name} came through")

    before = {number: signal.signal(number, unhandled) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ENDING)
def test_every_signal_that_ends_programs_is_an_interrupt(number):
    with pytest.raises(KeyboardInterrupt), raised():
        send(number)
    with first_interrupt() as interrupted:
        assert not interrupted.is_set()
        send(number)
        assert interrupted.is_set()


def test_signals_at_once_are_one_request_and_a_later_one_interrupts(monkeypatch):
    with first_interrupt() as interrupted:
        for number in ENDING * 2:
            send(number)
        assert interrupted.is_set()
        monkeypatch.setattr(interrupts, "SAME_REQUEST_S", -1)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)


def test_what_the_parent_process_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with raised(), first_interrupt() as interrupted:
        send(signal.SIGHUP)
        assert not interrupted.is_set()
