"""`Session`: a loaded bundle that segments one or more inputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrcfa.backends.records import is_address
from mrcfa.bundle import Bundle
from mrcfa.errors import Unsupported
from mrcfa.machine.interrupts import first_interrupt
from mrcfa.stream.stream import Stream
from mrcfa.stream.streams import Streams
from mrcfa.video.overlay import Renderer
from mrcfa.video.rounds import Batched, Image, Rounds, rounds_of
from mrcfa.video.segment import Input, Summary, Tally, Watch, segment
from mrcfa.video.sinks import Picture, Write, open_sink
from mrcfa.video.sources import Source
from mrcfa.video.style import Look, style_for


@contextmanager
def open_session(
    bundle: Path,
    backend: str,
    inputs: int,
    **options: Any,
) -> Iterator["Session"]:
    """Load a bundle for a number of inputs; the options are those of `Stream`.

    A bundle for one stream gets one stream per input; all share one backend, so each adds only its
    state. A bundle for several streams segments one frame of each input in one pass, whose time
    does not depend on the number of inputs.
    """
    opened = bundle if is_address(bundle) else Bundle.open(bundle)
    slots = opened.manifest.streams if isinstance(opened, Bundle) else 1
    if 1 < slots < inputs:
        raise Unsupported(
            f"{bundle} has {slots} slots for {inputs} inputs; use fewer inputs, or export with "
            f"--streams {inputs}"
        )
    if slots > 1:
        with Streams(opened, backend, convert_rgb=True, **options) as batch:
            yield Session(batch, Batched(batch))
        return
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream(opened, backend, convert_rgb=True, **options))
            for _ in range(inputs)
        ]
        yield Session(streams[0], rounds_of(streams))


@dataclass(frozen=True)
class Session:
    """A loaded bundle with the state of all inputs."""

    _segmenter: Stream | Streams
    """Any one of the rounds' segmenters, for properties that they share."""
    _rounds: Rounds

    @property
    def backend(self) -> str:
        return self._segmenter.backend

    @property
    def size(self) -> tuple[int, int]:
        """The bundle's frame size (height, width), which needs no resizing on the host."""
        return self._segmenter.size

    @property
    def classes(self) -> tuple[str, ...]:
        return self._segmenter.classes

    @property
    def palette(self) -> Image:
        return self._segmenter.palette

    def run(
        self,
        sources: Sequence[Source],
        places: Sequence[str | None],
        look: Look,
        reset_on_cut: bool = False,
        every_frame: bool = False,
        advance: Callable[[Sequence[Tally]], None] = lambda tallies: None,
        watches: Sequence[Watch] = (),
        force: bool = False,
    ) -> Summary:
        """Segment every source to its output path, if it has one; an error leaves no output.

        Live sources drop late frames unless `every_frame` is set. `watches`, one per source, are
        called with every mask. Folders are replaced only with `force`.
        """
        watching: Sequence[Watch | None] = watches or [None] * len(sources)
        with first_interrupt() as stop, ExitStack() as stack:  # also while sinks are closing
            inputs = []
            for source, place, watch in zip(sources, places, watching, strict=True):
                source.form = self._segmenter.input
                newest = source.live and not every_frame
                render, sink = self._outlet(place, look, source, newest, force)
                inputs.append(Input(source, render, stack.enter_context(sink), newest, watch))
            return segment(inputs, self._rounds, reset_on_cut, advance, stop=stop)

    def _outlet(
        self, place: str | None, look: Look, source: Source, numbered: bool, force: bool
    ) -> tuple[Callable[[Image, Image], Picture], AbstractContextManager[Write]]:
        """The renderer and the sink of one source."""
        if place is None:
            return lambda image, mask: mask, nullcontext(lambda name, picture: None)
        classes, palette, form = self.classes, self.palette, self._segmenter.input
        style = style_for(place, look.style)
        render = Renderer(style, classes, palette, look.alpha, look.only, look.legend, form)
        sink = open_sink(
            place,
            classes,
            palette,
            source.rate,
            numbered,
            source.live,
            lambda: source.aspect,
            force,
        )
        return render, sink
