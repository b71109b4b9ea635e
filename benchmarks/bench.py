"""`mrcfa bench` runs all contenders on the same frames: parity, latency, drift and memory."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mrcfa.backends import Arrays, Unfit
from mrcfa.benchmarks.clip import Images, benchmark_clip, looped
from mrcfa.benchmarks.compiled import peer_costs
from mrcfa.benchmarks.contenders import Contender, Role, contenders, reference
from mrcfa.benchmarks.evaluate import EvalOptions
from mrcfa.benchmarks.footprint import footprint
from mrcfa.benchmarks.layer_times import LayerTime, slowest_layers
from mrcfa.benchmarks.parity import (
    Comparison,
    Mask,
    drift,
    drift_checks,
    expected,
    marks,
    mask_of,
    pipelined_check,
)
from mrcfa.benchmarks.precisions import measured
from mrcfa.benchmarks.result import PICTURED, BenchOptions, Outcome, Result, Row
from mrcfa.benchmarks.speed import Speed, Stopwatch, two_in_flight
from mrcfa.bundle import Bundle
from mrcfa.bundle.checks import Check
from mrcfa.bundle.manifest import Device
from mrcfa.errors import InvalidValue, MrcfaError
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.hardware import usable_cores
from mrcfa.selftest.environment import environment, gpu_clocks, gpu_state

Show = Callable[[str, float], None]
"""Progress callback: the name of the current step, and the share of it that is done (0 to 1)."""


def bench(path: Path, options: BenchOptions, show: Show = lambda name, share: None) -> Result:
    """Run the whole benchmark: open the backends, race them, measure drift and footprints."""
    bundle = Bundle.open(path)
    options = checked(options, bundle)
    listed = contenders(bundle, options.backends, options.threads, options.peer)
    clip = benchmark_clip(bundle, options.video, options.warmup + options.frames)
    machine = environment(options.threads)

    judge = Racer(reference(bundle, options.threads), bundle)
    racers = [judge if row.role is Role.REFERENCE else Racer(row, bundle) for row in listed]
    running = [racer for racer in dict.fromkeys([judge, *racers]) if racer.running]
    followed = [racer for racer in running if racer.contender.role is Role.STREAM]
    stops = marks(bundle.config.depth, options.drift) if judge.running else []
    pictured = [options.warmup + i * options.frames // PICTURED for i in range(PICTURED)]
    race(running, judge, clip, options, pictured, show)
    for racer in running:
        if racer.contender.device is Device.GPU:
            racer.run_back_to_back(clip, options.frames)
            show("GPU rows, back to back", 1.0)
    machine |= gpu_clocks()  # while the GPU is active: an idle one lowers its clocks
    if stops and judge.running:
        with judge.stopping(f"on the way to frame {stops[0]}"):
            wanted = expected(judge.backend, clip, bundle.config.depth)
            for racer in followed:
                racer.follow(wanted, clip, stops, show)
    if not judge.running:
        for racer in racers:
            racer.judged = False
        if judge.outcome is Outcome.STOPPED and judge not in racers:
            racers.append(judge)
    rows = []
    for number, racer in enumerate(racers, start=1):
        rows.append(racer.row(options))
        show("memory and start-up", number / len(racers))
    return Result(
        bundle=bundle,
        options=options,
        rows=tuple(rows),
        environment=machine,
        pictures={
            number: bundle.manifest.input.to_rgb(clip[number % len(clip)]) for number in pictured
        },
        wanted=judge.masks,
        unchecked=judge.reason,
        peer_costs=peer_costs(bundle) if options.peer else {},
        metrics=_metrics(bundle, options, show),
    )


def race(
    racers: Sequence["Racer"],
    judge: "Racer",
    clip: Images,
    options: BenchOptions,
    pictured: Sequence[int],
    show: Show,
) -> None:
    """Pass each frame to all racers in random order: a slow moment of the machine affects all."""
    order, rng = list(racers), random.Random(0)
    rounds = options.warmup + options.frames
    for number, image in enumerate(looped(clip, rounds)):
        rng.shuffle(order)
        answers: dict[Racer, Arrays] = {}
        for racer in order:
            if racer.running:
                with racer.stopping(f"at frame {number}"):
                    answers[racer] = racer.watch.step(image)
        for racer, outputs in answers.items():
            if racer.contender.compared and judge in answers:
                with racer.stopping(f"at frame {number}"):
                    racer.comparison.add(outputs, answers[judge])
                    racer.judged = True
            if number in pictured:
                racer.masks[number] = mask_of(outputs)
        show("speed and parity", (number + 1) / rounds)
    for racer in racers:
        racer.raced = racer.running


class Racer:
    """One contender during the race: its stopwatch, its comparison, and its failure if any."""

    def __init__(self, contender: Contender, bundle: Bundle) -> None:
        self.contender, self._bundle = contender, bundle
        self.outcome, self.reason = Outcome.RAN, ""
        self.comparison = Comparison(contender.limits, bundle.manifest.classes)
        self.judged = False
        self.masks: dict[int, Mask] = {}
        self._drift: dict[int, float] = {}
        self.raced = False
        self._block: Speed | None = None
        self._gpu: dict[str, dict[str, str]] = {}
        self._layers: tuple[LayerTime, ...] = ()
        self._pipelined: list[Check] = []
        self._remark = ""
        try:
            self.backend = contender.open()
            self.watch = Stopwatch(self.backend)
        except (MissingExtra, Unfit) as error:
            self.outcome, self.reason = Outcome.NOT_RUN, _sentence(error)
        except Exception as error:  # no package or device is missing, so something is broken
            self.outcome, self.reason = Outcome.STOPPED, f"at the start: {_sentence(error)}"

    @property
    def running(self) -> bool:
        return self.outcome is Outcome.RAN

    @contextmanager
    def stopping(self, when: str) -> Iterator[None]:
        """Catch any error of a runtime, such as a lost GPU: it stops this racer and no other."""
        try:
            yield
        except Exception as error:
            self.outcome, self.reason = Outcome.STOPPED, f"{when}: {_sentence(error)}"

    def run_back_to_back(self, clip: Images, frames: int) -> None:
        """Measure the speed of a GPU row; the race, in which GPUs idle, gives only its parity."""
        if not self.running:
            return
        with self.stopping("in its block of frames"):
            self._gpu["before"] = gpu_state()
            if self.contender.pipelined:
                self._pipelined = [pipelined_check(self.backend, clip, frames)]
                self._block = two_in_flight(self.backend, clip, frames)
            else:
                self._block = Stopwatch(self.backend).back_to_back(clip, frames)
            self._gpu["after"] = gpu_state()
        if self.running and self.contender.engine is not None:
            try:
                self._layers = tuple(slowest_layers(self._bundle, self.contender.engine))
            except Exception as error:  # the row is valid without layer times
                self._remark = f"layers were not timed: {_sentence(error)}"

    def follow(self, wanted: Arrays, clip: Images, stops: Sequence[int], show: Show) -> None:
        """Run one long stream from a fresh start and record its drift."""
        if self.running:
            with self.stopping(f"on the way to frame {stops[-1]}"):
                name = f"drift of {self.contender.name}"
                self._drift = drift(
                    self.backend, wanted, clip, stops, lambda share: show(name, share)
                )

    def row(self, options: BenchOptions) -> Row:
        """All results of this racer. The footprint is measured here, in a process of its own."""
        row = Row(self.contender, self.outcome, self.reason)
        if not self.raced:
            return row
        checks = list(self.comparison.checks) if self.judged else []
        checks += self._pipelined
        if self._drift:
            output = self._bundle.manifest.output
            checks += drift_checks(self._drift, self.contender.limits, output)
        row = replace(
            row,
            speed=self._block or self.watch.speed(options.warmup),
            gpu=self._gpu,
            layers=self._layers,
            reason=self.reason or self._remark,
            checks=tuple(checks),
            drift=self._drift,
            masks=self.masks,
        )
        if not self.running:
            return row
        try:
            found = footprint(self._bundle.path, self.contender.name, options.threads)
            return replace(row, footprint=found)
        except MrcfaError as error:
            return replace(row, reason=f"memory and start-up were not measured: {error}")


def _metrics(
    bundle: Bundle, options: BenchOptions, show: Show
) -> Mapping[str, Mapping[str, float]]:
    if options.data is None:
        return {}
    return measured(bundle, EvalOptions(options.data, options.split, options.limit), show)


def _sentence(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def checked(options: BenchOptions, bundle: Bundle) -> BenchOptions:
    """The options with defaults filled in; raises InvalidValue for a warm-up that is too short."""
    depth = bundle.config.depth
    if options.warmup < depth:
        raise InvalidValue(
            f"--warmup is {options.warmup}, but the farthest reference lies {depth} frames back: "
            f"before frame {depth} a stream does less than its usual work; use {depth} or more"
        )
    return replace(options, threads=options.threads or usable_cores())
