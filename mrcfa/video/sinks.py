"""Where pictures go: an H.264 video, a folder of PNGs, an .npz file, one PNG or a pipe.

Files and folders are written beside their final name and renamed at the end: whoever sees the name
sees all of it, and a run that fails leaves what was there before. A full disk is no failure of what
was finished: videos and folders keep that. A video is written in fragments, so that it plays up to
the last of them even if the process is killed.
"""

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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

Picture = NDArray[np.uint8]
"""A mask (h, w) of classes, or RGB (h, w, 3)."""
Write = Callable[[str, Picture], None]
"""Takes the name of a frame and its picture."""

FILES = (".mp4", ".npz", ".png")
"""How the names of files end; a PNG is for one picture."""
BLANK = 255
"""The value of mask pixels that stand for no class."""

FRAGMENT_S = 1
"""Seconds of a video that are written at once, and lost if the process is killed."""


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
    """The sink that `place` names: one of `FILES`, `-` for standard output, else a folder.

    Masks keep their exact values in every one of them: a PNG is indexed with the palette, and a
    video of masks is lossless. If frames are left out and `numbered` in the source, a video shows
    each at its own time. A video of a `live` source has a name at once, `*.partial.mp4`, because
    nobody can record it again. Its pixels have the `aspect` at the first picture. What nothing is
    written to leaves nothing behind. A folder that is not empty is replaced with `force` alone.
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
    """H.264 at a constant rate, in the first picture's size; others are fitted into it.

    Pictures that are `numbered` are shown when it is their number's turn.
    """
    av = load("av")
    options = {
        "movflags": "+hybrid_fragmented+delay_moov",  # once it is finished, an ordinary MP4
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
                if stream is not None and target.refusal is None:
                    file.mux(stream.encode(None))
        if not live:
            _move_table_to_front(part, to_the_end)


class _Target:
    """The file that FFmpeg writes to. It ends with the last whole fragment that found room.

    After the first refusal nothing reaches the disk, or the table of frames that FFmpeg writes at
    the end would be half there, and hide the fragments.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.refusal: OSError | None = None

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["_Target"]:
        with path.open("r+b", buffering=0) as file:
            target = cls(file)
            try:
                yield target
            finally:
                if target.refusal is not None:
                    file.truncate(_end_of_fragments(file))
        target.check()

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest and self.refusal is None:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                self.refusal = error
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _end_of_fragments(file: FileIO) -> int:
    """Where the last whole fragment of an unfinished MP4 ends; 0 if it has none."""
    size, start, end = file.seek(0, 2), 0, 0
    while start + 8 <= size:
        file.seek(start)
        header = file.read(8)
        start += int.from_bytes(header[:4], "big")
        if header[4:] == b"mdat" and start <= size:
            end = start
    return end


def _move_table_to_front(path: Path, to_the_end: ExitStack) -> None:
    """Rewrite an MP4 so that players can start before they have the whole file.

    A disk without room for two leaves the table of frames at the end.
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
    """Another name for `part` while it is written, which players open and people see."""
    token = secrets.token_hex(4)
    shown = path.with_name(f"{path.stem}.{token}.partial{path.suffix}")
    part.rename(shown)
    try:
        yield shown
    finally:
        shown.rename(part)


@contextmanager
def _kept(path: Path, folder: bool = False, over: bool = False) -> Iterator[Path]:
    """`replaced`, but what is there when the system refuses to write on takes the name as well."""
    refusal: OSError | CannotWrite | None = None
    with replaced(path, folder, over) as part:
        try:
            yield part
        except (OSError, CannotWrite) as error:
            if not (any(part.iterdir()) if folder else part.stat().st_size):
                raise
            refusal = error
    if isinstance(refusal, OSError):
        reason = refusal.strerror or refusal
        raise CutShort(f"cannot write {path}: {reason}; the frames before that are kept")
    if refusal is not None:
        raise refusal


@contextmanager
def _folder(path: Path, palette: NDArray[np.uint8], force: bool) -> Iterator[Write]:
    """One PNG for each frame, under the frame's name."""
    with _kept(path, folder=True, over=force) as part:

        def write(name: str, picture: Picture) -> None:
            file = part / f"{name}.png"
            try:
                _save_png(picture, palette, file)
            except OSError:
                file.unlink(missing_ok=True)
                raise

        yield write


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


def _h264(file: Any, picture: Picture, rate: Fraction, aspect: Fraction) -> Any:
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
    context.sample_aspect_ratio = aspect
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
