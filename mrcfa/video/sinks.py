"""Sinks for pictures: an H.264 video, a folder of PNGs, an .npz file, one PNG, or a pipe.

Files and folders are written beside their final name and renamed at the end, so a failed run leaves
the old content. If the disk is full, videos and folders keep the finished part. A video is written
in fragments, so that it can be played up to the last one even if the process is killed.
"""

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from io import FileIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import InvalidValue, Unsupported
from mrcfa.machine.extras import load
from mrcfa.machine.files import (
    CannotWrite,
    CutShort,
    check_writable,
    held,
    replaced,
    write_errors_reported,
)
from mrcfa.model.input_format import InputFormat, Layout, Matrix, Range
from mrcfa.video.pixels import as_rgb, numbers_of

Pixels = NDArray[np.uint8]
"""A mask (h, w) of classes, or RGB (h, w, 3)."""


@dataclass(frozen=True)
class Nv12Picture:
    """A picture of NV12 (h·3/2, w). Videos take it as it is, all other sinks as RGB."""

    pixels: NDArray[np.uint8]
    form: InputFormat


Picture = Pixels | Nv12Picture
Write = Callable[[str, Picture], None]
"""Called with the name of a frame and its picture."""

FILES = (".mp4", ".npz", ".png")
"""Suffixes of file outputs; a PNG holds one picture."""
BLANK = 255
"""The value of mask pixels without a class."""

FRAGMENT_S = 1
"""Length of a fragment of a video in seconds; the last one is lost if the process is killed."""


@contextmanager
def open_sink(
    place: str,
    classes: Sequence[str],
    palette: NDArray[np.uint8],
    rate: Fraction,
    numbered: bool = False,
    live: bool = False,
    aspect: Callable[[], Fraction] = lambda: Fraction(1),
    force: bool = False,
) -> Iterator[Write]:
    """Open the sink at `place`: one of `FILES`, `-` for standard output, or a folder.

    Masks keep their exact values: PNGs are indexed with the palette, and videos of masks are
    lossless. With `numbered`, a video shows each picture at the time of its frame number, because
    frames may be missing. With `live`, a video is visible as `*.partial.mp4` while it is written,
    because a live source cannot be recorded again. `aspect` is read at the first picture. Without
    pictures, nothing is created. A folder that is not empty is replaced only with `force`.
    """
    sink = _sink(place, classes, palette, rate, numbered, live, aspect, force)
    writes = list[Write]()
    with write_errors_reported(place), ExitStack() as stack:

        def write(name: str, picture: Picture) -> None:
            if not writes:
                writes.append(stack.enter_context(sink))
            writes[0](name, picture)

        yield write


def kind_of(place: str) -> str:
    """The suffix of a file, `-` for a pipe, or "" for a folder, which a final slash also marks."""
    suffix = "" if place.endswith("/") else Path(place).suffix
    if place == "-" or suffix in FILES:
        return suffix or "-"
    if suffix and not Path(place).is_dir():
        raise InvalidValue(
            f"{place} has a suffix that cannot be written; name an .mp4, an .npz, a folder, or for "
            "one image a .png"
        )
    return ""


def _sink(
    place: str,
    classes: Sequence[str],
    palette: NDArray[np.uint8],
    rate: Fraction,
    numbered: bool,
    live: bool,
    aspect: Callable[[], Fraction],
    force: bool,
) -> AbstractContextManager[Write]:
    path, kind = Path(place), kind_of(place)
    if kind == "-":
        if sys.stdout is None:
            raise CannotWrite("cannot write -: standard output is closed")
        return _pipe()
    check_writable(path, folder=not kind, over=force)
    if kind == ".mp4":
        return _video(path, rate, numbered, live, aspect)
    if kind == ".npz":
        return _npz(path, classes, palette)
    return _image(path, palette) if kind == ".png" else _folder(path, palette, force)


@contextmanager
def _video(
    path: Path, rate: Fraction, numbered: bool, live: bool, aspect: Callable[[], Fraction]
) -> Iterator[Write]:
    """Write H.264 in the first picture's size; other pictures are fitted into it.

    With `numbered`, a picture is shown at the time of its frame number.
    """
    av = load("av")
    options = {
        "movflags": "+hybrid_fragmented+delay_moov",  # an ordinary MP4 when finished
        "frag_duration": f"{FRAGMENT_S * 1_000_000}",
        "flush_packets": "1",
    }
    with (
        ExitStack() as to_the_end,
        _kept(path) as hidden,
        _visible(path, hidden) if live else nullcontext(hidden) as part,
    ):
        with (
            _Target.open(part) as target,
            av.open(target, "w", format="mp4", options=options) as file,
        ):
            stream: Any = None
            first = 0

            def write(name: str, picture: Picture) -> None:
                nonlocal stream, first
                if stream is None:
                    stream = _h264(file, picture, rate, aspect())
                    first = int(name) if numbered else 0
                frame = _video_frame(picture, stream)
                if numbered:
                    frame.pts, frame.time_base = int(name) - first, 1 / rate
                file.mux(stream.encode(frame))
                target.check()

            try:
                yield write
            except av.error.FFmpegError as error:
                raise OSError(error.errno, error.strerror) from None
            finally:
                if stream is not None and target.error is None:
                    file.mux(stream.encode(None))
        if not live:
            _move_table_to_front(part, to_the_end)


class _Target:
    """The file object that FFmpeg writes to, which ends with the last complete fragment.

    After the first write error nothing is written any more. Otherwise an incomplete table of
    frames, which FFmpeg writes at the end, could hide the fragments.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.error: OSError | None = None

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["_Target"]:
        with path.open("r+b", buffering=0) as file:
            target = cls(file)
            try:
                yield target
            finally:
                if target.error is not None:
                    file.truncate(_end_of_fragments(file))
        target.check()

    def check(self) -> None:
        """Raise the write error, if there was one."""
        if self.error is not None:
            raise self.error

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest and self.error is None:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                self.error = error
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _end_of_fragments(file: FileIO) -> int:
    """Position of the end of the last complete fragment of an MP4; 0 if it has none."""
    size, start, end = file.seek(0, 2), 0, 0
    while start + 8 <= size:
        file.seek(start)
        header = file.read(8)
        start += int.from_bytes(header[:4], "big")
        if header[4:] == b"mdat" and start <= size:
            end = start
    return end


def _move_table_to_front(path: Path, to_the_end: ExitStack) -> None:
    """Rewrite an MP4 with its table of frames in front, so that players can start early.

    If the disk has no space for a second copy, the table stays at the end.
    """
    av = load("av")
    copy = path.with_name(f".front{path.name}")
    options = {"movflags": "+faststart"}
    try:
        copy.touch()
        to_the_end.enter_context(held(copy))
        with av.open(str(path)) as old, av.open(str(copy), "w", "mp4", options=options) as new:
            (stream,) = old.streams.video
            moved = new.add_stream_from_template(stream)
            for packet in old.demux(stream):
                if packet.size:
                    packet.stream = moved
                    new.mux(packet)
        copy.replace(path)
    except (OSError, av.error.FFmpegError):
        copy.unlink(missing_ok=True)


@contextmanager
def _visible(path: Path, part: Path) -> Iterator[Path]:
    """Give `part` a visible name while it is written, so that users and players find it."""
    token = secrets.token_hex(4)
    shown = path.with_name(f"{path.stem}.{token}.partial{path.suffix}")
    part.rename(shown)
    try:
        yield shown
    finally:
        shown.rename(part)


@contextmanager
def _kept(path: Path, folder: bool = False, over: bool = False) -> Iterator[Path]:
    """Like `replaced`, but the finished part gets the final name even after a write error."""
    failure: OSError | CannotWrite | None = None
    with replaced(path, folder, over) as part:
        try:
            yield part
        except (OSError, CannotWrite) as error:
            if not (any(part.iterdir()) if folder else part.stat().st_size):
                raise
            failure = error
    if isinstance(failure, OSError):
        reason = failure.strerror or failure
        raise CutShort(f"cannot write {path}: {reason}; earlier frames are kept")
    if failure is not None:
        raise failure


@contextmanager
def _folder(path: Path, palette: NDArray[np.uint8], force: bool) -> Iterator[Write]:
    """Write one PNG per frame, with the frame's name."""
    with _kept(path, folder=True, over=force) as part:

        def write(name: str, picture: Picture) -> None:
            file = part / f"{name}.png"
            try:
                _save_png(pixels_of(picture), palette, file)
            except OSError:
                file.unlink(missing_ok=True)
                raise

        yield write


@contextmanager
def _image(path: Path, palette: NDArray[np.uint8]) -> Iterator[Write]:
    with replaced(path) as part:
        yield lambda name, picture: _save_png(pixels_of(picture), palette, part)


def _save_png(picture: Pixels, palette: NDArray[np.uint8], path: Path) -> None:
    """Save a PNG; masks are indexed with the palette."""
    image = load("PIL.Image").fromarray(picture)
    if picture.ndim == 2:
        image.putpalette(palette.tobytes())
    image.save(path, "PNG", compress_level=1)


@contextmanager
def _npz(path: Path, classes: Sequence[str], palette: NDArray[np.uint8]) -> Iterator[Write]:
    """Write one array per frame, with the frame's name, then `classes` and `palette`.

    Arrays are written one by one, so that a long video need not fit into memory.
    """
    with replaced(path) as part, ZipFile(part, "w", ZIP_DEFLATED, compresslevel=1) as archive:

        def write(name: str, array: NDArray[Any]) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)

        yield lambda name, picture: write(name, pixels_of(picture))
        write("classes", np.array(classes))
        write("palette", palette)


@contextmanager
def _pipe() -> Iterator[Write]:
    """Write the bytes of all pictures to standard output, without headers."""

    def write(_: str, picture: Picture) -> None:
        sys.stdout.buffer.write(np.ascontiguousarray(pixels_of(picture)).data)

    yield write
    sys.stdout.buffer.flush()


_SHOWN_AS = InputFormat(Layout.NV12, Matrix.BT709, Range.LIMITED)
"""The matrix and the range of videos of RGB pictures."""
_FULL_RANGE = 2  # FFmpeg's constant


def _h264(file: Any, picture: Picture, rate: Fraction, aspect: Fraction) -> Any:
    """A video stream for pictures of this size and kind.

    Odd sides get one more pixel, because 4:2:0 and many players need even ones. Masks are lossless
    and use the full range of values.
    """
    if "libx264" not in load("av").codecs_available:
        raise Unsupported("this PyAV cannot write H.264; reinstall it with: pip install av")
    stream = file.add_stream("libx264", rate=rate)
    height, width = _size_of(picture)
    stream.height, stream.width = height + height % 2, width + width % 2
    context = stream.codec_context
    context.sample_aspect_ratio = aspect
    if isinstance(picture, np.ndarray) and picture.ndim == 2:
        stream.pix_fmt, stream.options = "gray", {"preset": "veryfast", "qp": "0"}
        context.color_range = _FULL_RANGE
    else:
        nv12 = isinstance(picture, Nv12Picture)
        stream.pix_fmt = "nv12" if nv12 else "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "20"}
        matrix, levels = numbers_of(picture.form if isinstance(picture, Nv12Picture) else _SHOWN_AS)
        context.color_range = levels
        context.colorspace = context.color_primaries = context.color_trc = matrix
    return stream


def _video_frame(picture: Picture, stream: Any) -> Any:
    """The picture as a video frame in the stream's size and format."""
    height, width = _size_of(picture)
    fits = (height + height % 2, width + width % 2) == (stream.height, stream.width)
    from_ndarray = load("av").VideoFrame.from_ndarray
    if isinstance(picture, Nv12Picture) and fits:
        return from_ndarray(picture.pixels, format="nv12")
    pixels = pixels_of(picture)
    if not fits:
        pixels = _fitted(pixels, (stream.width, stream.height))
    height, width = pixels.shape[:2]
    sides = ((0, height % 2), (0, width % 2), (0, 0))[: pixels.ndim]
    pixels = np.pad(pixels, sides, mode="edge")
    if pixels.ndim == 2:
        return from_ndarray(pixels, format="gray")
    context = stream.codec_context
    return from_ndarray(pixels, format="rgb24").reformat(
        format=stream.pix_fmt,
        dst_colorspace=int(context.colorspace),
        dst_color_range=int(context.color_range),
    )


def pixels_of(picture: Picture) -> Pixels:
    """The picture as a mask or RGB."""
    return as_rgb(picture.pixels, picture.form) if isinstance(picture, Nv12Picture) else picture


def _size_of(picture: Picture) -> tuple[int, int]:
    if isinstance(picture, Nv12Picture):
        return picture.form.size(picture.pixels.shape)
    return picture.shape[0], picture.shape[1]


def _fitted(picture: Pixels, size: tuple[int, int]) -> Pixels:
    """The picture fitted into (width, height), with its aspect ratio and bars around it."""
    pillow, operations = load("PIL.Image"), load("PIL.ImageOps")
    image = pillow.fromarray(picture)
    if picture.ndim == 2:
        return np.asarray(operations.pad(image, size, pillow.Resampling.NEAREST, color=BLANK))
    return np.asarray(operations.pad(image, size, pillow.Resampling.BILINEAR))
