"""The pipeline source → backend → renderer → sink, with threads for decoding, drawing, encoding.

The backend runs in the calling thread. Frames wait for it in a short queue, and masks are drawn and
written while it works on the next frame, so it is idle only if another stage is slower. Several
inputs share it in rounds of one frame per input.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from queue import Queue
from typing import ParamSpec

from mrcfa.errors import MrcfaError, counted
from mrcfa.machine.interrupts import first_interrupt
from mrcfa.video.cuts import CutDetector
from mrcfa.video.feed import Arrival, Clock, Feed, take_round
from mrcfa.video.latency import Latencies
from mrcfa.video.rounds import Image, Rounds
from mrcfa.video.sinks import Picture, Write
from mrcfa.video.sources import Frame, Source

_Args = ParamSpec("_Args")


@dataclass(frozen=True)
class Input:
    """A source, and the rendering and writing of its masks."""

    source: Source
    render: Callable[[Image, Image], Picture]
    write: Write
    newest: bool = False
    """Segment only the newest available frame and drop older ones."""
    watch: "Watch | None" = None
    """Called with every mask as soon as it is ready; it must not block."""


@dataclass
class Tally:
    """Counts and latencies of one input."""

    frames: int = 0
    dropped: int = 0
    """Frames that a newer one replaced before the backend was free."""
    cuts: int = 0
    """Number of resets at scene cuts."""
    latency: Latencies = field(default_factory=Latencies)
    """Latencies from a frame's arrival until its mask is written."""
    complaint: str | None = None
    """The reason for missing frames, if any; all earlier frames are written."""


Watch = Callable[[Arrival[Frame], Image, Tally], None]
"""Called with a frame, its mask and the input's tally."""


@dataclass(frozen=True)
class Summary:
    """The result of a run."""

    tallies: tuple[Tally, ...]
    """The tally of each input."""
    interrupted: bool
    """True if a signal ended the run; all frames decoded before are written."""
    seconds: float
    backend_seconds: float
    """Seconds spent in the backend."""

    @property
    def frames(self) -> int:
        return sum(tally.frames for tally in self.tallies)


def segment(
    inputs: Sequence[Input],
    rounds: Rounds,
    reset_on_cut: bool = False,
    advance: Callable[[Sequence[Tally]], None] = lambda tallies: None,
    clock: Clock = time.perf_counter,
    stop: threading.Event | None = None,
) -> Summary:
    """Segment the inputs until all have ended; `advance` is called after each frame.

    An input that ends or fails does not affect the others. The event `stop` ends the run after the
    current frames, with complete outputs. Without it, the first Ctrl-C or SIGTERM does the same,
    and a later one raises KeyboardInterrupt.
    """
    tallies = [Tally() for _ in inputs]
    cuts, segments = [CutDetector() for _ in inputs], [0] * len(inputs)
    begun: deque[dict[int, Arrival[Frame]]] = deque()
    start, busy = time.perf_counter(), _Stopwatch()
    changed = threading.Condition()
    interrupts = first_interrupt() if stop is None else nullcontext(stop)
    with interrupts as stopped, ExitStack() as stack:
        puts = [
            stack.enter_context(_output(one, tally, clock))
            for one, tally in zip(inputs, tallies, strict=True)
        ]
        feeds = [Feed(one.source, one.newest, changed=changed, clock=clock) for one in inputs]
        for feed in feeds:
            stack.callback(feed.abandon)
        for number in range(len(inputs)):
            rounds.reset(number)

        def finish() -> None:
            arrivals = begun.popleft()
            with busy:
                masks = rounds.finish()
            for number, mask in masks.items():
                puts[number](arrivals[number], mask)
                tallies[number].frames += 1
                tallies[number].dropped = feeds[number].dropped
                advance(tallies)

        while True:
            ready = take_round(feeds, wait=not begun, stop=stopped)
            if not ready and not begun:
                break
            for number, arrival in ready.items():
                frame = arrival.item
                cut = reset_on_cut and cuts[number].begins_scene(frame.image, frame.form)
                tallies[number].cuts += cut
                if cut or frame.segment != segments[number]:
                    segments[number] = frame.segment
                    while begun:
                        finish()
                    with busy:
                        rounds.reset(number)
            if ready:
                with busy:
                    rounds.begin({number: arrival.item.image for number, arrival in ready.items()})
                begun.append(ready)
            if not ready or len(begun) == rounds.in_flight:
                finish()
    for tally, feed, one in zip(tallies, feeds, inputs, strict=True):
        tally.dropped, tally.complaint = feed.dropped, _complaint(one.source, tally, feed.failure)
    seconds = time.perf_counter() - start
    return Summary(tuple(tallies), stopped.is_set(), seconds, busy.seconds)


class _Stopwatch:
    """The total time of several `with` blocks, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def _complaint(source: Source, tally: Tally, failure: BaseException | None) -> str | None:
    if isinstance(failure, MrcfaError):
        return str(failure)
    if isinstance(failure, MemoryError):
        return f"memory ran out after {counted(tally.frames, 'frame')} of {source.name}"
    if failure is not None:
        return f"{source.name} failed after {counted(tally.frames, 'frame')}: {failure!r}"
    if not tally.frames:
        return source.complaint or f"{source.name} has no frames in the selected time span"
    return source.complaint


@contextmanager
def _output(
    one: Input, tally: Tally, clock: Clock
) -> Iterator[Callable[[Arrival[Frame], Image], None]]:
    """Draw masks in one thread and write them in another; yields a function of frame and mask.

    Waiting pictures add latency, so the queues of a live input hold only one.
    """
    depth = 1 if one.newest else 4

    def write(arrival: Arrival[Frame], picture: Picture) -> None:
        one.write(arrival.item.name, picture)
        tally.latency.add(clock() - arrival.time)

    with in_background(write, depth) as save:

        def draw(arrival: Arrival[Frame], mask: Image) -> None:
            if one.watch is not None:
                one.watch(arrival, mask, tally)
            save(arrival, one.render(arrival.item.image, mask))

        with in_background(draw, depth) as put:
            yield put


@contextmanager
def in_background(work: Callable[_Args, None], depth: int = 4) -> Iterator[Callable[_Args, None]]:
    """Run calls of `work` in another thread, in order; yields a function that returns at once.

    A call blocks while `depth` calls are waiting. The next call, or the end of the block, raises
    the exception of a failed one. The block ends when all calls are done.
    """
    waiting: Queue[Callable[[], None] | None] = Queue(depth)
    failures: list[BaseException] = []

    def consume() -> None:
        while (call := waiting.get()) is not None:
            if not failures:  # after a failure, only empty the queue, so that no caller blocks
                try:
                    call()
                except BaseException as error:
                    failures.append(error)

    def put(*args: _Args.args, **kwargs: _Args.kwargs) -> None:
        if failures:
            raise failures[0]
        waiting.put(partial(work, *args, **kwargs))

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield put
    finally:
        waiting.put(None)
        thread.join()
    if failures:
        raise failures[0]
