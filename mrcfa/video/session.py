"""One loaded bundle that segments one input or several at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError
from mrcfa.serving.address import is_address
from mrcfa.stream import Stream
from mrcfa.streams import Streams
from mrcfa.video.overlay import Renderer
from mrcfa.video.rounds import Batched, Rounds, rounds_of
from mrcfa.video.segment import Input, Summary, Tally, segment
from mrcfa.video.sinks import open_sink
from mrcfa.video.sources import Source
from mrcfa.video.style import Look, style_for


@contextmanager
def open_session(bundle: Path, backend: str, inputs: int) -> Iterator["Session"]:
    """A stream for each input, which share one backend; or one slot each, if the bundle has some.

    A further stream costs its state alone. A bundle for several streams does a frame of each input
    in one pass, and one pass costs the same however many inputs take part.
    """
    slots = 1 if is_address(bundle) else Bundle.open(bundle).manifest.streams
    if 1 < slots < inputs:
        raise MrcfaError(
            f"{bundle} has {slots} slots and there are {inputs} inputs; leave some out, or "
            f"export with --streams {inputs}"
        )
    if slots > 1:
        with Streams(bundle, backend) as batch:
            yield Session(batch, Batched(batch))
        return
    with ExitStack() as stack:
        streams = [stack.enter_context(Stream(bundle, backend)) for _ in range(inputs)]
        yield Session(streams[0], rounds_of(streams))


@dataclass(frozen=True)
class Session:
    _segmenter: Stream | Streams
    """One of those that the rounds have: they are all alike."""
    _rounds: Rounds

    @property
    def backend(self) -> str:
        return self._segmenter.backend

    def run(
        self,
        sources: Sequence[Source],
        places: Sequence[str],
        look: Look,
        reset_on_cut: bool = False,
        every_frame: bool = False,
        advance: Callable[[Sequence[Tally]], None] = lambda tallies: None,
    ) -> Summary:
        """Segment every source to its place; nothing is written if an error ends it.

        Recordings give every frame, live sources the newest one unless told otherwise.
        """
        classes, palette = self._segmenter.classes, self._segmenter.palette
        with ExitStack() as stack:
            inputs = []
            for source, place in zip(sources, places, strict=True):
                style = style_for(place, look.style)
                render = Renderer(style, classes, palette, look.alpha, look.only)
                newest = source.live and not every_frame
                sink = open_sink(place, classes, palette, source.rate, numbered=newest)
                inputs.append(Input(source, render, stack.enter_context(sink), newest))
            return segment(inputs, self._rounds, reset_on_cut, advance)
