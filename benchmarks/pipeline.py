"""The pace of `mrcfa run` around the network: decode, feed, draw, write.

    python -m mrcfa.benchmarks.pipeline [VIDEO]

The backend answers at once, so only the pipeline is measured. Ways alternate, and the medians of
their rounds are compared with the first way. Without VIDEO, the sample world is drawn,
enlarged and encoded as H.264 at 1080×1920.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from mrcfa.benchmarks.table import markdown_table
from mrcfa.data.world.scene import scene
from mrcfa.machine.extras import load
from mrcfa.machine.files import scratch_folder
from mrcfa.model.input_format import RGB, InputFormat, Layout
from mrcfa.stream.segmenter import scaled
from mrcfa.video.overlay import Renderer
from mrcfa.video.rounds import Sequential
from mrcfa.video.sample import FIRST_SEED
from mrcfa.video.segment import Input, segment
from mrcfa.video.sinks import open_sink
from mrcfa.video.sources import Span, Video, VideoFile
from mrcfa.video.style import Style

SIZE, FRAMES, ROUNDS = (1080, 1920), 48, 5
DRAWN = (270, 480)
NV12 = InputFormat.usual(Layout.NV12, SIZE[0])
Image = NDArray[np.uint8]


class OneByOne(VideoFile):
    """A recording that is read as a live source is: no frame is decoded before the last one is."""

    live = True
    _frames_of = Video._frames_of


@dataclass(frozen=True)
class Way:
    name: str
    source: type[VideoFile]
    form: InputFormat


WAYS = (
    Way("RGB, frames one by one", OneByOne, RGB),
    Way("RGB", VideoFile, RGB),
    Way("NV12", VideoFile, NV12),
)


class Instant:
    """A segmenter whose masks are there before they are asked for."""

    classes = tuple(f"class {number}" for number in range(8))
    palette = np.random.default_rng(0).integers(0, 256, (8, 3), np.uint8)

    def __init__(self, form: InputFormat) -> None:
        self._form = form
        self._masks: dict[tuple[int, int], Image] = {}

    def __call__(self, frame: Image) -> Image:
        size = self._form.size(frame.shape)
        if size not in self._masks:
            squares = np.arange(size[0])[:, None] // 64 + np.arange(size[1]) // 64
            self._masks[size] = (squares % 8).astype(np.uint8)
        return self._masks[size]

    def reset(self) -> None:
        """Nothing is kept from frame to frame."""


@dataclass(frozen=True)
class Pace:
    """The time of a frame on the clock and on all cores together, in milliseconds."""

    wall_ms: float
    cpu_ms: float


def pace(way: Way, video: Path, out: Path | None) -> Pace:
    """The pace of one run that writes an overlay to `out`, or drops masks without it."""
    began = process_time()
    source, segmenter = way.source(video, Span()), Instant(way.form)
    source.form = way.form
    colours = segmenter.classes, segmenter.palette
    with ExitStack() as stack:
        if out is None:
            item = Input(source, Renderer(Style.MASK, *colours), _dropped)
        else:
            write = stack.enter_context(open_sink(str(out), *colours, source.rate))
            item = Input(source, Renderer(Style.OVERLAY, *colours, form=way.form), write)
        done = segment([item], Sequential([segmenter]))
    used = process_time() - began
    return Pace(1e3 * done.seconds / done.frames, 1e3 * used / done.frames)


def _dropped(name: str, picture: object) -> None:
    """A sink that keeps nothing."""


def measured(video: Path, folder: Path) -> dict[tuple[str, str], list[Pace]]:
    """The paces of all rounds, by way and sink. The first round of each warms up."""
    found: dict[tuple[str, str], list[Pace]] = {}
    for number in range(ROUNDS + 1):
        for sink, out in (("nothing", None), ("overlay.mp4", folder / f"{number}.mp4")):
            for way in WAYS:
                place = out and out.with_stem(f"{out.stem}-{WAYS.index(way)}")
                one = pace(way, video, place)
                if number:
                    found.setdefault((way.name, sink), []).append(one)
                if place is not None:
                    place.unlink()
    return found


@contextmanager
def drawn() -> Iterator[Path]:
    """A video of the sample world, with one slice per frame."""
    with scratch_folder() as folder:
        path = folder / "street.mp4"
        nothing = np.zeros((0, 3), np.uint8)
        with open_sink(str(path), (), nothing, Fraction(30)) as write:
            for number, (image, _) in enumerate(scene(FRAMES, DRAWN, FIRST_SEED["test"])):
                write(f"{number:06d}", scaled(image, SIZE, "BICUBIC"))
        yield path


def main(words: Sequence[str]) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        video = Path(words[0]) if words else stack.enter_context(drawn())
        found = measured(video, folder)
    lines = []
    for (name, sink), paces in found.items():
        first = found[WAYS[0].name, sink]
        figures = []
        for clock in ("wall_ms", "cpu_ms"):
            own, before = (
                np.array([getattr(one, clock) for one in each]) for each in (paces, first)
            )
            figures += [f"{np.median(own):.1f}", f"{np.median(before / own):.2f}"]
        lines.append([name, sink, *figures])
    columns = ("frames", "sink", "ms a frame", "ratio", "CPU ms a frame", "ratio")
    load("rich.console").Console(width=100).print(markdown_table(columns, lines))


if __name__ == "__main__":
    main(sys.argv[1:])
