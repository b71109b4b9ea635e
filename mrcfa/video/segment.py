"""The pipeline source → stream → renderer → sink, with threads for decoding, drawing, encoding.

The backend stays in the calling thread and is never idle as long as the others keep up: frames wait
for it in a short queue, and its masks are drawn and written while it works on the next one. Several
inputs share it in rounds, one frame of each that has one.
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
from mrcfa.video.cuts import Cuts
from mrcfa.video.feed import Arrival, Clock, Feed, take_round
from mrcfa.video.latency import Latencies
from mrcfa.video.rounds import Image, Rounds
from mrcfa.video.sinks import Picture, Write
from mrcfa.video.sources import Frame, Source

_Given = ParamSpec("_Given")


@dataclass(frozen=True)
class Input:
    """A source, and the way of its masks."""

    source: Source
    render: Callable[[Image, Image], Picture]
    write: Write
    newest: bool = False
    """Take the newest frame that is there and drop those before it, instead of every frame."""
    watch: "Watch | None" = None
    """Sees every mask as soon as it is there; must not keep anybody waiting."""


@dataclass
class Tally:
    """What came of one input."""

    frames: int = 0
    dropped: int = 0
    """Frames that a newer one replaced before the backend was free."""
    cuts: int = 0
    """How often the state was reset at a scene cut."""
    latency: Latencies = field(default_factory=Latencies)
    """From a frame's arrival until its mask is written."""
    complaint: str | None = None
    """Why there are no frames, or no more: what came before is written."""


Watch = Callable[[Arrival[Frame], Image, Tally], None]
"""Takes a frame, its mask and what came of the input so far."""


@dataclass(frozen=True)
class Summary:
    tallies: tuple[Tally, ...]
    """One for each input."""
    interrupted: bool
    """Whether a signal ended it; what was decoded until then is written."""
    seconds: float
    backend_seconds: float
    """The time spent inside the segmenter alone."""

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
    """Segment the inputs until all of them ended; `advance` is called after each frame.

    An input that ends or fails leaves the others alone. The event `stop` ends all, so that what is
    written is whole; without it the first Ctrl-C or SIGTERM does, and a later one interrupts.
    """
    tallies = [Tally() for _ in inputs]
    cuts, takes = [Cuts() for _ in inputs], [0] * len(inputs)
    begun: deque[dict[int, Arrival[Frame]]] = deque()
    start, busy = time.perf_counter(), _Stopwatch()
    changed = threading.Condition()
    interrupts = first_interrupt() if stop is None else nullcontext(stop)
    with interrupts as stopped, ExitStack() as stack:
        puts = [
            stack.enter_context(_output(each, tally, clock))
            for each, tally in zip(inputs, tallies, strict=True)
        ]
        feeds = [Feed(each.source, each.newest, changed=changed, clock=clock) for each in inputs]
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
                cut = reset_on_cut and cuts[number].begins_scene(arrival.item.image)
                tallies[number].cuts += cut
                if cut or arrival.item.take != takes[number]:
                    takes[number] = arrival.item.take
                    while begun:
                        finish()
                    with busy:
                        rounds.reset(number)
            if ready:
                with busy:
                    rounds.begin({number: each.item.image for number, each in ready.items()})
                begun.append(ready)
            if not ready or len(begun) == rounds.in_flight:
                finish()
    for tally, feed, each in zip(tallies, feeds, inputs, strict=True):
        tally.dropped, tally.complaint = feed.dropped, _complaint(each.source, tally, feed.failure)
    seconds = time.perf_counter() - start
    return Summary(tuple(tallies), stopped.is_set(), seconds, busy.seconds)


class _Stopwatch:
    """The seconds spent inside of it."""

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
        return source.complaint or f"{source.name} has no frames in the part asked for"
    return source.complaint


@contextmanager
def _output(
    one: Input, tally: Tally, clock: Clock
) -> Iterator[Callable[[Arrival[Frame], Image], None]]:
    """Takes a frame and its mask, which are drawn in one thread and written in another.

    What waits for these adds to the latency, so where that matters only one picture does.
    """
    depth = 1 if one.newest else 4

    def write(arrival: Arrival[Frame], picture: Picture) -> None:
        one.write(arrival.item.name, picture)
        tally.latency.add(clock() - arrival.time)

    with behind(write, depth) as save:

        def draw(arrival: Arrival[Frame], mask: Image) -> None:
            if one.watch is not None:
                one.watch(arrival, mask, tally)
            save(arrival, one.render(arrival.item.image, mask))

        with behind(draw, depth) as put:
            yield put


@contextmanager
def behind(work: Callable[_Given, None], depth: int = 4) -> Iterator[Callable[_Given, None]]:
    """`work`, but done by another thread, call after call; each call returns at once.

    It waits when `depth` calls are not yet done. What the work raises is raised by the next call,
    or when the block ends, which it does when all work is done.
    """
    waiting: Queue[Callable[[], None] | None] = Queue(depth)
    failures: list[BaseException] = []

    def consume() -> None:
        while (call := waiting.get()) is not None:
            if not failures:  # after a failure only empty the queue, so that nobody waits for it
                try:
                    call()
                except BaseException as error:
                    failures.append(error)

    def put(*given: _Given.args, **named: _Given.kwargs) -> None:
        if failures:
            raise failures[0]
        waiting.put(partial(work, *given, **named))

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield put
    finally:
        waiting.put(None)
        thread.join()
    if failures:
        raise failures[0]
