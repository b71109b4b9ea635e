"""`mrcfa bench`: what every backend computes and how fast, beside what one could pick instead."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.clip import Images, benchmark_clip, looped
from benchmarks.contenders import Contender, Role, contenders, reference
from benchmarks.environment import environment, gpu_clocks
from benchmarks.footprint import footprint
from benchmarks.parity import Comparison, Mask, drift, drift_checks, expected, marks, mask_of
from benchmarks.result import PICTURED, Outcome, Request, Result, Row
from benchmarks.speed import Stopwatch
from mrcfa.backends import Arrays, Unfit
from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError
from mrcfa.extras import MissingExtra
from mrcfa.machine import usable_cores

Show = Callable[[str, float], None]
"""Hears what is being done, and which share of it is."""


def bench(path: Path, request: Request, show: Show = lambda name, share: None) -> Result:
    """Open, race, follow for drift, take footprints: everything `mrcfa bench` finds out."""
    bundle = Bundle.open(path)
    _check(request, bundle)
    request = replace(request, threads=request.threads or usable_cores())
    listed = contenders(bundle, request.backends, request.threads, request.peer)
    clip = benchmark_clip(bundle, request.video, request.warmup + request.frames)
    machine = environment(request.threads)

    judge = Lane(reference(bundle, request.threads), bundle)
    lanes = [judge if each.role is Role.REFERENCE else Lane(each, bundle) for each in listed]
    running = [lane for lane in dict.fromkeys([judge, *lanes]) if lane.running]
    followed = [lane for lane in running if lane.contender.role is Role.STREAM]
    stops = marks(max(bundle.config.references), request.drift) if judge.running else []
    pictured = [request.warmup + i * request.frames // PICTURED for i in range(PICTURED)]
    race(running, judge, clip, request, pictured, show)
    machine |= gpu_clocks()  # now, while it is awake
    if stops and judge.running:
        with judge.stopping(f"on the way to frame {stops[0]}"):
            wanted = expected(judge.backend, clip, max(bundle.config.references))
            for lane in followed:
                lane.follow(wanted, clip, stops, show)
    if not judge.running:
        for lane in lanes:
            lane.judged = False
        if judge.outcome is Outcome.STOPPED and judge not in lanes:
            lanes.append(judge)
    rows = []
    for number, lane in enumerate(lanes, start=1):
        rows.append(lane.row(request))
        show("memory and start-up", number / len(lanes))
    return Result(
        bundle=bundle,
        request=request,
        rows=tuple(rows),
        environment=machine,
        pictures={number: clip[number % len(clip)] for number in pictured},
        wanted=judge.masks,
        unchecked=judge.reason,
    )


def race(
    lanes: Sequence["Lane"],
    judge: "Lane",
    clip: Images,
    request: Request,
    pictured: Sequence[int],
    show: Show,
) -> None:
    """All take turns at every frame, in changing order: what slows the machine hits them alike."""
    order, chance = list(lanes), random.Random(0)
    rounds = request.warmup + request.frames
    for number, image in enumerate(looped(clip, rounds)):
        chance.shuffle(order)
        answers: dict[Lane, Arrays] = {}
        for lane in order:
            if lane.running:
                with lane.stopping(f"at frame {number}"):
                    answers[lane] = lane.watch.step(image)
        for lane, outputs in answers.items():
            if lane.contender.compared and judge in answers:
                with lane.stopping(f"at frame {number}"):
                    lane.comparison.add(outputs, answers[judge])
                    lane.judged = True
            if number in pictured:
                lane.masks[number] = mask_of(outputs)
        show("speed and parity", (number + 1) / rounds)
    for lane in lanes:
        lane.raced = lane.running


class Lane:
    """One contender during the race: its clock, its comparison, and what went wrong."""

    def __init__(self, contender: Contender, bundle: Bundle) -> None:
        self.contender, self._bundle = contender, bundle
        self.outcome, self.reason = Outcome.RAN, ""
        self.comparison = Comparison(contender.precision, bundle.manifest.classes)
        self.judged = False
        self.masks: dict[int, Mask] = {}
        self._drift: dict[int, float] = {}
        self.raced = False
        try:
            self.backend = contender.open()
            self.watch = Stopwatch(self.backend)
        except (MissingExtra, Unfit) as error:
            self.outcome, self.reason = Outcome.NOT_RUN, _sentence(error)
        except Exception as error:  # nothing is lacking, so something is broken
            self.outcome, self.reason = Outcome.STOPPED, f"at the start: {_sentence(error)}"

    @property
    def running(self) -> bool:
        return self.outcome is Outcome.RAN

    @contextmanager
    def stopping(self, when: str) -> Iterator[None]:
        """Whatever a runtime raises, a GPU that vanished say, ends this lane and no other."""
        try:
            yield
        except Exception as error:
            self.outcome, self.reason = Outcome.STOPPED, f"{when}: {_sentence(error)}"

    def follow(self, wanted: Arrays, clip: Images, stops: Sequence[int], show: Show) -> None:
        """One long stream from a fresh start."""
        if self.running:
            with self.stopping(f"on the way to frame {stops[-1]}"):
                name = f"drift of {self.contender.name}"
                self._drift = drift(
                    self.backend, wanted, clip, stops, lambda share: show(name, share)
                )

    def row(self, request: Request) -> Row:
        """All that was found out. The footprint is taken now, in a process of its own."""
        row = Row(self.contender, self.outcome, self.reason)
        if not self.raced:
            return row
        checks = list(self.comparison.checks) if self.judged else []
        if self._drift:
            output = self._bundle.manifest.output
            checks += drift_checks(self._drift, self.contender.precision, output)
        row = replace(
            row,
            speed=self.watch.speed(request.warmup, self.contender.in_parts),
            checks=tuple(checks),
            drift=self._drift,
            masks=self.masks,
        )
        if not self.running:
            return row
        try:
            taken = footprint(self._bundle.path, self.contender.name, request.threads)
            return replace(row, footprint=taken)
        except MrcfaError as error:
            return replace(row, reason=f"memory and start-up were not measured: {error}")


def _sentence(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _check(request: Request, bundle: Bundle) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    depth = max(bundle.config.references)
    if request.warmup < depth:
        raise MrcfaError(
            f"--warmup is {request.warmup}, but the farthest reference lies {depth} frames back: "
            f"before frame {depth} a stream does less than its usual work; use {depth} or more"
        )
