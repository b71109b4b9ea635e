"""The pipeline source → stream → renderer → sink, with threads for decoding, drawing, encoding.

The backend stays in the calling thread and is never idle as long as the others keep up: frames
wait for it in a short queue, and its masks are drawn and written while it works on the next one.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, Full, Queue
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import MrcfaError
from mrcfa.video.overlay import Renderer
from mrcfa.video.sinks import Write
from mrcfa.video.sources import Frame, Source

CUT_LEVELS = 20
"""By how many of 255 levels pixels change at a scene cut, on average."""
CUT_SHARE = 0.3
"""Which share of the pixels has other colours after a scene cut."""


class Segmenter(Protocol):
    """What `mrcfa.Stream` is to a pipeline."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def palette(self) -> NDArray[np.uint8]: ...
    def __call__(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """RGB (h, w, 3) to the class of every pixel, (h, w)."""
        ...

    def reset(self) -> None:
        """Forget the frames so far: the next one begins a video."""
        ...


@dataclass(frozen=True)
class Summary:
    frames: int
    cuts: int
    """How often the state was reset at a scene cut."""
    interrupted: bool
    """Whether Ctrl-C ended it; what was decoded until then is written."""
    seconds: float
    backend_seconds: float
    """The time spent inside the segmenter alone."""


def segment(
    source: Source,
    segmenter: Segmenter,
    render: Renderer,
    write: Write,
    reset_on_cut: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Summary:
    """Segment every frame of the source; `advance` is called after each.

    The first Ctrl-C ends the source early, so that what is written is whole; the second one
    interrupts as usual.
    """
    frames = cuts = 0
    backend_seconds = 0.0
    start = time.perf_counter()

    def draw(frame: Frame, mask: NDArray[np.uint8]) -> None:
        save(frame.name, render(frame.image, mask))

    segmenter.reset()
    with first_interrupt() as interrupted, behind(write) as save, behind(draw) as put:
        for frame, cut in ahead(_marked(source, reset_on_cut), interrupted):
            began = time.perf_counter()
            if cut:
                segmenter.reset()
                cuts += 1
            mask = segmenter(frame.image)
            backend_seconds += time.perf_counter() - began
            put(frame, mask)
            frames += 1
            advance()
    if not frames:
        raise MrcfaError(source.complaint or f"{source.name} has no frames in the part asked for")
    return Summary(frames, cuts, interrupted.is_set(), time.perf_counter() - start, backend_seconds)


_Item = TypeVar("_Item")
_Given = ParamSpec("_Given")


def ahead(
    items: Iterable[_Item], stop: threading.Event | None = None, depth: int = 4
) -> Iterator[_Item]:
    """The same items, produced by another thread up to `depth` of them early, until `stop`."""
    stop = stop or threading.Event()
    abandoned = threading.Event()
    ready: Queue[tuple[_Item] | BaseException | None] = Queue(depth)

    def offer(entry: tuple[_Item] | BaseException | None) -> None:
        while not abandoned.is_set():
            try:
                return ready.put(entry, timeout=_POLL_S)
            except Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                offer((item,))
                if abandoned.is_set():
                    return
            offer(None)
        except BaseException as error:
            offer(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        while not stop.is_set():
            try:
                entry = ready.get(timeout=_POLL_S)
            except Empty:
                continue
            if entry is None:
                return
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]
    finally:
        abandoned.set()
        thread.join(_GRACE_S)  # a silent camera would hold it much longer


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


@contextmanager
def first_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, instead of raising; later ones raise again."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # only the main thread receives signals
        return
    before = signal.getsignal(signal.SIGINT)

    def note(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


_POLL_S = 0.1
_GRACE_S = 1.0


def _marked(frames: Iterable[Frame], look: bool) -> Iterator[tuple[Frame, bool]]:
    """Frames, and whether each begins a new scene; never, unless asked to `look`."""
    last = None
    for frame in frames:
        step = max(1, min(frame.image.shape[:2]) // 64)
        thumbnail = frame.image[::step, ::step] if look else None
        yield frame, thumbnail is not None and last is not None and is_cut(last, thumbnail)
        last = thumbnail


def is_cut(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> bool:
    """Whether two RGB pictures (h, w, 3) are of different scenes.

    Colours keep their shares when the camera moves, and pixels their values when the light
    changes a little: at a cut both break at once.
    """
    if before.shape != after.shape:
        return True
    moved = np.abs(before.astype(np.int16) - after).mean()
    recoloured = np.abs(_colours(before) - _colours(after)).sum() / 2
    return bool(moved > CUT_LEVELS and recoloured > CUT_SHARE)


def _colours(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The share of pixels in each of 4×4×4 colours."""
    codes = (image >> 6) @ np.array([16, 4, 1])
    return np.bincount(codes.ravel(), minlength=64) / codes.size
