"""Where pictures go: an H.264 video, a folder of PNGs, an .npz file, one PNG or a pipe.

Files and folders are written beside their final name and renamed at the end: whoever sees the name
sees all of it, and a run that fails leaves what was there before.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue, Unsupported
from mrcfa.extras import load
from mrcfa.files import check_writable, refusals_told, replaced

Picture = NDArray[np.uint8]
"""A mask (h, w) of classes, or RGB (h, w, 3)."""
Write = Callable[[str, Picture], None]
"""Takes the name of a frame and its picture."""

FILES = (".mp4", ".npz", ".png")
"""How the names of files end; a PNG is for one picture."""
BLANK = 255
"""The value of mask pixels that stand for no class."""


@contextmanager
def open_sink(
    place: str,
    classes: Sequence[str],
    palette: NDArray[np.uint8],
    rate: Fraction,
    numbered: bool = False,
    force: bool = False,
) -> Iterator[Write]:
    """The sink that `place` names: one of `FILES`, `-` for standard output, else a folder.

    Masks keep their exact values in every one of them: a PNG is indexed with the palette, and a
    video of masks is lossless. If frames are left out and `numbered` in the source, a video shows
    each at its own time. What nothing is written to leaves nothing behind. A folder that is not
    empty is replaced with `force` alone.
    """
    sink, writes = _sink(place, classes, palette, rate, numbered, force), list[Write]()
    with refusals_told(place), ExitStack() as stack:

        def write(name: str, picture: Picture) -> None:
            if not writes:
                writes.append(stack.enter_context(sink))
            writes[0](name, picture)

        yield write


def kind_of(place: str) -> str:
    """The end of a file's name, `-`, or nothing for a folder: with a slash it may have dots."""
    suffix = "" if place.endswith("/") else Path(place).suffix
    if place == "-" or suffix in FILES:
        return suffix or "-"
    if suffix and not Path(place).is_dir():
        raise InvalidValue(
            f"{place} cannot be written; use a name.mp4, a name.npz, a folder or -, or of one "
            "image a name.png"
        )
    return ""


def _sink(
    place: str,
    classes: Sequence[str],
    palette: NDArray[np.uint8],
    rate: Fraction,
    numbered: bool,
    force: bool,
) -> AbstractContextManager[Write]:
    path, kind = Path(place), kind_of(place)
    if kind == "-":
        return _pipe()
    check_writable(path, folder=not kind, over=force)
    if kind == ".mp4":
        return _video(path, rate, numbered)
    if kind == ".npz":
        return _npz(path, classes, palette)
    return _image(path, palette) if kind == ".png" else _folder(path, palette, force)


@contextmanager
def _video(path: Path, rate: Fraction, numbered: bool) -> Iterator[Write]:
    """H.264 at a constant rate, in the first picture's size; others are fitted into it.

    Pictures that are `numbered` are shown when it is their number's turn.
    """
    av = load("av")
    options = {"movflags": "+faststart"}  # players can start before they have the whole file
    with replaced(path) as part, av.open(str(part), "w", format="mp4", options=options) as file:
        stream: Any = None
        first = 0

        def write(name: str, picture: Picture) -> None:
            nonlocal stream, first
            if stream is None:
                stream = _h264(file, picture, rate)
                first = int(name) if numbered else 0
            frame = _video_frame(picture, stream)
            if numbered:
                frame.pts, frame.time_base = int(name) - first, 1 / rate
            file.mux(stream.encode(frame))

        try:
            yield write
            if stream is not None:
                file.mux(stream.encode(None))
        except av.error.FFmpegError as error:
            raise OSError(error.errno, error.strerror) from None


@contextmanager
def _folder(path: Path, palette: NDArray[np.uint8], force: bool) -> Iterator[Write]:
    """One PNG for each frame, under the frame's name."""
    with replaced(path, folder=True, over=force) as part:
        yield lambda name, picture: _save_png(picture, palette, part / f"{name}.png")


@contextmanager
def _image(path: Path, palette: NDArray[np.uint8]) -> Iterator[Write]:
    with replaced(path) as part:
        yield lambda name, picture: _save_png(picture, palette, part)


def _save_png(picture: Picture, palette: NDArray[np.uint8], path: Path) -> None:
    """Masks are indexed with the palette."""
    image = load("PIL.Image").fromarray(picture)
    if picture.ndim == 2:
        image.putpalette(palette.tobytes())
    image.save(path, "PNG", compress_level=1)


@contextmanager
def _npz(path: Path, classes: Sequence[str], palette: NDArray[np.uint8]) -> Iterator[Write]:
    """One array for each frame, under the frame's name, then `classes` and `palette`.

    Written as it comes, so that a long video need not fit into memory.
    """
    with replaced(path) as part, ZipFile(part, "w", ZIP_DEFLATED, compresslevel=1) as archive:

        def write(name: str, array: NDArray[Any]) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)

        yield write
        write("classes", np.array(classes))
        write("palette", palette)


@contextmanager
def _pipe() -> Iterator[Write]:
    """The bytes of every picture, one after the other, without any header."""

    def write(_: str, picture: Picture) -> None:
        sys.stdout.buffer.write(np.ascontiguousarray(picture).data)

    yield write
    sys.stdout.buffer.flush()


_BT709, _VIDEO_RANGE, _FULL_RANGE = 1, 1, 2  # FFmpeg's numbers for what a stream is tagged with


def _h264(file: Any, picture: Picture, rate: Fraction) -> Any:
    """A stream for pictures like this one.

    Its sides are even, as 4:2:0 needs them and every player expects: an odd side gets one more
    pixel. Masks are written without loss and over the full range of values.
    """
    if "libx264" not in load("av").codecs_available:
        raise Unsupported("this PyAV cannot write H.264; reinstall it with: pip install av")
    stream = file.add_stream("libx264", rate=rate)
    height, width = picture.shape[:2]
    stream.height, stream.width = height + height % 2, width + width % 2
    context = stream.codec_context
    if picture.ndim == 2:
        stream.pix_fmt, stream.options = "gray", {"preset": "veryfast", "qp": "0"}
        context.color_range = _FULL_RANGE
    else:
        stream.pix_fmt, stream.options = "yuv420p", {"preset": "veryfast", "crf": "20"}
        context.color_range = _VIDEO_RANGE
        context.colorspace = context.color_primaries = context.color_trc = _BT709
    return stream


def _video_frame(picture: Picture, stream: Any) -> Any:
    """The picture in the stream's size and format."""
    height, width = picture.shape[:2]
    if (height + height % 2, width + width % 2) != (stream.height, stream.width):
        picture = _fitted(picture, (stream.width, stream.height))
    height, width = picture.shape[:2]
    sides = ((0, height % 2), (0, width % 2), (0, 0))[: picture.ndim]
    picture = np.pad(picture, sides, mode="edge")
    from_ndarray = load("av").VideoFrame.from_ndarray
    if picture.ndim == 2:
        return from_ndarray(picture, format="gray")
    return from_ndarray(picture, format="rgb24").reformat(format="yuv420p", dst_colorspace="ITU709")


def _fitted(picture: Picture, size: tuple[int, int]) -> Picture:
    """The whole picture inside (width, height), its shape kept, with bars around it."""
    pillow, operations = load("PIL.Image"), load("PIL.ImageOps")
    image = pillow.fromarray(picture)
    if picture.ndim == 2:
        return np.asarray(operations.pad(image, size, pillow.Resampling.NEAREST, color=BLANK))
    return np.asarray(operations.pad(image, size, pillow.Resampling.BILINEAR))
