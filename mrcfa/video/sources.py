"""Sources of frames: video files, images, cameras, network streams and raw RGB on a pipe.

A source can be iterated once. Frames that cannot be decoded are left out and reported in
`complaint`, so that a damaged recording still gives all its good frames.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.console.addresses import without_secrets
from mrcfa.data.images import read_image
from mrcfa.errors import (
    Damaged,
    InvalidValue,
    MrcfaError,
    NotFound,
    RuntimeFailed,
    Unsupported,
    counted,
    named,
)
from mrcfa.machine.extras import load
from mrcfa.machine.files import natural_order
from mrcfa.model.input_format import RGB, InputFormat, Layout
from mrcfa.video.decoder import decoded, one_at_a_time
from mrcfa.video.feed import prefetched
from mrcfa.video.pixels import upright

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}
PATIENCE_S = 10
"""Seconds that a camera or network stream may send nothing."""
RECORDED = {"ftp", "http", "https", "sftp"}
"""Protocols that also serve recordings, which have a length; all others are always live."""
PROTOCOLS = (
    *("ftp", "http", "https", "httpproxy", "mmsh", "mmst", "rist", "rtmp", "rtmpe", "rtmps"),
    *("rtmpt", "rtmpte", "rtmpts", "ffrtmpcrypt", "ffrtmphttp", "rtp", "sctp", "sftp", "srt"),
    *("srtp", "tcp", "tls", "udp", "udplite", "crypto", "data"),
)
"""Protocols allowed for addresses and in their playlists, which must not name local files."""
CONTAINERS = (
    *("mov", "matroska", "avi", "mpegts", "mpeg", "mpegvideo", "flv", "live_flv", "ogg", "asf"),
    *("mxf", "gxf", "rm", "dv", "nut", "nsv", "nuv", "wtv", "ivf", "obu", "av1", "h261", "h263"),
    *("h264", "hevc", "vvc", "m4v", "vc1", "cavsvideo", "dirac", "mjpeg", "mjpeg_2000", "mpjpeg"),
    *("smjpeg", "yuv4mpegpipe", "gif", "apng", "image2", "webp_pipe", "jpegxl_anim", "j2k_pipe"),
    *("jpeg_pipe", "png_pipe", "bmp_pipe", "tiff_pipe", "qoi_pipe", "dpx_pipe", "exr_pipe"),
    *("pam_pipe", "pbm_pipe", "pgm_pipe", "ppm_pipe", "wav", "mp3", "aac", "flac"),
)
"""Formats that contain their pictures; others of FFmpeg name files or hosts to read."""
PLAYLISTS = ("hls", "rtp", "rtsp", "sdp")
"""Network formats, which name the address of the pictures."""


@dataclass(frozen=True)
class Frame:
    """One frame of a source."""

    name: str
    """Stem of the image file, or the frame's number; also the name of its mask in a folder."""
    image: NDArray[np.uint8]
    """Contiguous pixels in the format `form`."""
    segment: int = 0
    """Number of the uninterrupted segment, which increases when a source is reopened."""
    form: InputFormat = RGB


@dataclass(frozen=True)
class Span:
    """The part of a source to read."""

    start: float = 0
    """Start in seconds from the first frame."""
    end: float = math.inf
    """End in seconds from the first frame."""
    stride: int = 1
    """Keep one frame in every `stride`."""

    def __post_init__(self) -> None:
        if not self.start >= 0 or not self.end > self.start:
            raise InvalidValue(
                f"--start {self.start:g} --end {self.end:g} is not a time span; both are seconds, "
                "and the end must be after the start"
            )
        if self.stride < 1:
            raise InvalidValue(f"--stride is {self.stride}; use 1 for every frame, or a larger one")

    def of(self, rate: Fraction) -> slice:
        """The same part as a slice of frame numbers at this frame rate."""
        stop = None if math.isinf(self.end) else math.ceil(self.end * rate)
        return slice(math.ceil(self.start * rate), stop, self.stride)


class Source(ABC):
    """An iterator of frames.

    `rate` is the frame rate per second, `total` the expected number of frames, if known.
    """

    complaint: str | None = None
    """A sentence about lost frames, if any; set after the last frame."""
    live = False
    """True if frames come in real time, even if they are not read fast enough."""
    aspect = Fraction(1)
    """Width of a pixel divided by its height; set with the first frame."""
    form = RGB
    """The format that the frames are for; set before they are read. For NV12, videos with even
    sides give NV12 without RGB in between. Raw frames come in this format. All others are RGB."""

    def __init__(self, name: str, rate: Fraction, total: int | None) -> None:
        self.name = name
        self.rate = rate
        self.total = total

    @abstractmethod
    def __iter__(self) -> Iterator[Frame]: ...


def open_source(
    place: str,
    span: Span | None = None,
    rate: Fraction = Fraction(25),
    raw: tuple[int, int] | None = None,
) -> Source:
    """Open a source by its place.

    A place is a video file, an image, a folder or glob of images, a camera's index or device, a
    URL, or `-` for RGB frames of size `raw` (height, width) on standard input. Images and raw
    frames have no frame rate, so `rate` is used.
    """
    span = span or Span()
    if place == "-":
        if raw is None:
            raise InvalidValue("raw frames on standard input have no size; add --raw HEIGHTxWIDTH")
        if sys.stdin is None:
            raise NotFound("standard input is closed; pipe raw frames into it")
        # The unbuffered stream: a waiting thread would hold the buffer's lock at exit.
        return RawFrames(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer), raw, span, rate)
    if raw is not None:
        raise InvalidValue(
            "--raw is the size of frames on standard input; "
            f"leave it out for {without_secrets(place)}"
        )
    path = Path(place.removeprefix("file://"))
    if path.is_dir():
        return Images(place, [file for file in path.iterdir() if _is_image(file)], span, rate)
    if path.is_file():
        return Images(place, [path], span, rate) if _is_image(path) else VideoFile(path, span)
    if "://" in place and not place.startswith("file://"):
        return NetworkStream(place, span)
    if place.isdecimal() or path.is_char_device():
        return Camera(place, span)
    if any(wildcard in place for wildcard in "*?["):
        return Images(place, [file for file in globbed(path) if _is_image(file)], span, rate)
    raise NotFound(f"there is no {place}; name a video, a folder of images, a camera or a URL")


def globbed(pattern: Path) -> Iterator[Path]:
    """The paths that match a glob pattern, which may be absolute."""
    return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


def open_sources(
    places: Sequence[str], span: Span, rate: Fraction, raw: tuple[int, int] | None
) -> list[Source]:
    """Open several sources; `raw` is the frame size on standard input, if that is among them."""
    if places.count("-") > 1:
        raise InvalidValue("standard input can be read only once; give - only once")
    return [
        open_source(place, span, rate, raw if place == "-" or "-" not in places else None)
        for place in places
    ]


class Video(Source):
    """A source that FFmpeg decodes; frames are rotated upright by the recording's metadata."""

    def __init__(self, name: str, file: str, span: Span, remedy: str, **how: Any) -> None:
        av = load("av")
        self._open = partial(av.open, file, metadata_errors="replace", **how)
        try:
            self._container = self._open()
        except av.error.ArgumentError:  # raised also for formats outside the whitelist
            raise Unsupported(
                f"{name} is damaged or in a format that is not allowed; {remedy}"
            ) from None
        except av.error.FFmpegError as error:
            kind = Damaged if isinstance(error, av.error.InvalidDataError) else NotFound
            raise kind(f"{name} cannot be opened: {_reason(error)}; {remedy}") from None
        stream = self._container.streams.best("video")
        if stream is None or stream.codec_context is None:
            self._container.close()
            if stream is None:
                raise NotFound(f"{name} holds no pictures; {remedy}")
            raise Unsupported(f"{name} has a codec that FFmpeg does not know; {remedy}")
        self._stream = stream
        # Facts that are read while another thread decodes, and may close the container.
        self._pixel_aspect = Fraction(stream.sample_aspect_ratio or 1)
        self._time_base, self._start_time = stream.time_base, stream.start_time
        self._table = stream.frames, stream.duration
        self._span = span
        self._failures = list[Exception]()
        self._broken = ""
        self._native_rate = Fraction(stream.average_rate or stream.guessed_rate or 25)
        self._native_rate = self._native_rate.limit_denominator(100_000)
        super().__init__(name, self._native_rate / span.stride, self._expected())

    def __iter__(self) -> Iterator[Frame]:
        """The frames. Those of a recording are decoded by a thread of its own."""
        first = last = None
        shown = 0
        frames = self._decoded()
        for frame in frames if self.live else prefetched(frames):
            seconds = self._seconds(frame)
            if seconds < self._span.start:
                continue
            if seconds >= self._span.end:
                return
            first, last = first or frame, frame
            if shown % self._span.stride == 0:
                try:
                    image, form = upright(frame, self.form)
                except Exception as error:
                    self._lose(error)
                    continue
                self.aspect = self._aspect_of(frame)
                yield Frame(f"{shown // self._span.stride:06d}", image, form=form)
            shown += 1
        self.complaint = self._complaint(first, last, shown)

    def _decoded(self) -> Iterator[Any]:
        """All frames that can be decoded; packets that cannot are counted."""
        with self._container, ExitStack() as stack:
            try:
                if self._span.start:
                    self._container.seek(int(self._span.start * 1_000_000) + self._began())
                packets = self._container.demux(self._stream)
                yield from self._frames_of(packets, stack)
            except Exception as error:
                self._broken = _reason(error)

    def _frames_of(self, packets: Iterator[Any], stack: ExitStack) -> Iterator[Any]:
        """The frames, each of which all cores decode together, so that none waits for later ones.

        What is opened for them is closed with the stack.
        """
        decoder = self._stream.codec_context
        decoder.thread_type = "SLICE"
        return one_at_a_time(packets, decoder, self._lose)

    def _lose(self, error: Exception) -> None:
        """Note a frame that cannot be decoded."""
        self._failures.append(error)

    def _aspect_of(self, frame: Any) -> Fraction:
        ratio = self._pixel_aspect
        if not Fraction(1, 16) <= ratio <= 16:
            return Fraction(1)
        return 1 / ratio if round(frame.rotation / 90) % 2 else ratio

    def _seconds(self, frame: Any) -> float:
        """Time of a frame in seconds from the first one, rounded to milliseconds.

        Some containers round time stamps to milliseconds; without rounding, --start could miss a
        frame.
        """
        if frame.pts is None:
            return 0
        return round(float(frame.pts * frame.time_base) - self._began() / 1_000_000, 3)

    def _began(self) -> int:
        """Time stamp of the first frame in microseconds."""
        if self._start_time is None:
            return 0
        return int(self._start_time * self._time_base * 1_000_000)

    def _length(self) -> float:
        """Duration in seconds by the file's table of frames; 0 without a table."""
        frames, duration = self._table
        if not frames or duration is None:
            return 0
        return max(0.0, float(duration * self._time_base))

    def _expected(self) -> int | None:
        length = self._length()
        if not length:
            return None
        frames = round(length * self._native_rate)
        return len(range(*self._span.of(self._native_rate).indices(frames)))

    def _complaint(self, first: Any, last: Any, shown: int) -> str | None:
        """A sentence about lost frames, or None.

        A file is cut off if it ends before its table of frames does. The number of lost frames
        follows from that gap and the frame rate, because the table of a trimmed file also lists
        frames that are never shown.
        """
        lost = len(self._failures)
        scarce = any(isinstance(error, MemoryError) for error in self._failures)
        reason = "memory ran out" if scarce else "it is damaged"
        if last is None:
            lost = max(lost, self.total or 0)
        elif self._length():
            end = self._seconds(last) + (last.duration or 0) * last.time_base
            if (self._length() - end) * self._native_rate > 0.5:
                due = round((self._length() - self._seconds(first)) * self._native_rate)
                lost = max(lost, due - shown)
        if lost:
            return f"{self.name} lost {lost} of {counted(shown + lost, 'frame')}: {reason}"
        return f"{self.name} was interrupted: {self._broken}" if self._broken else None


class VideoFile(Video):
    """A video file in one of `CONTAINERS` and any codec of FFmpeg."""

    def __init__(self, path: Path, span: Span) -> None:
        remedy = "if it is a whole video, convert it to H.264 in MP4"
        options = {
            "protocol_whitelist": "file",
            "format_whitelist": ",".join(CONTAINERS),
            "pattern_type": "none",  # names of images are no patterns
        }
        super().__init__(str(path), f"file:{path}", span, remedy, options=options)

    def _frames_of(self, packets: Iterator[Any], stack: ExitStack) -> Iterator[Any]:
        """The frames, several of which are decoded at once until damage is seen."""

        def spare() -> Any:
            stream = stack.enter_context(self._open()).streams.best("video")
            stream.codec_context.thread_type = "SLICE"
            return stream.codec_context

        self._stream.thread_type = "FRAME"
        return decoded(packets, spare, self._lose)


class NetworkStream(Video):
    """A video at an address; live unless it has a length and its protocol serves recordings."""

    def __init__(self, address: str, span: Span) -> None:
        options = {
            "protocol_whitelist": ",".join(PROTOCOLS),
            "format_whitelist": ",".join(CONTAINERS + PLAYLISTS),
        }
        name, remedy = without_secrets(address), "check that it is on and reachable"
        super().__init__(name, address, span, remedy, options=options, timeout=PATIENCE_S)
        recorded = address.partition("://")[0].lower() in RECORDED
        self.live = not recorded or self._container.duration is None


class Camera(Video):
    """A camera of this machine, by its index or device path."""

    live = True

    def __init__(self, place: str, span: Span) -> None:
        name = f"camera {place}" if place.isdecimal() else place
        super().__init__(name, span=span, remedy="check that it is plugged in", **_camera(place))


class Images(Source):
    """Images of any size and mode, in natural order (2 before 10)."""

    def __init__(self, name: str, paths: list[Path], span: Span, rate: Fraction) -> None:
        load("PIL.Image")  # without Pillow, fail here and not at every image
        self._paths = sorted(paths, key=natural_order)[span.of(rate)]
        if not paths:
            raise NotFound(f"{name} has no images; it needs {named(sorted(IMAGE_SUFFIXES))}")
        stems = [path.stem for path in self._paths]
        distinct = len(set(stems)) == len(stems)
        self._names = stems if distinct else [f"{n:06d}" for n in range(len(stems))]
        super().__init__(name, rate / span.stride, len(stems))

    def __iter__(self) -> Iterator[Frame]:
        unreadable, reason = [], "cannot be read"
        for path, name in zip(self._paths, self._names, strict=True):
            try:
                image = read_image(path)
            except MrcfaError as error:
                unreadable.append(path.name)
                if isinstance(error, RuntimeFailed):
                    reason = "did not fit into memory"
            else:
                yield Frame(name, image)
        if unreadable:
            self.complaint = (
                f"{self.name} lost {len(unreadable)} of {counted(len(self._paths), 'frame')}: "
                f"{named(unreadable)} {reason}"
            )


class RawFrames(Source):
    """Frames without headers, as `ffmpeg -f rawvideo -pix_fmt rgb24 -` writes them.

    They are in the format of `form`: rgb24, bgr24 or nv12.
    """

    def __init__(
        self, stream: IO[bytes], size: tuple[int, int], span: Span, rate: Fraction
    ) -> None:
        super().__init__("standard input", rate / span.stride, None)
        self._stream = stream
        self._size = size
        self._slice = span.of(rate)

    def __iter__(self) -> Iterator[Frame]:
        part = self._slice
        for number, image in enumerate(islice(self._images(), part.start, part.stop, part.step)):
            form = self.form if image.ndim == 2 else RGB
            yield Frame(f"{number:06d}", image, form=form)

    def _images(self) -> Iterator[NDArray[np.uint8]]:
        shape = self.form.shape(self._size)
        size = math.prod(shape)
        while data := self._read(size):
            if len(data) < size:
                self.complaint = (
                    "the last frame on standard input was lost: only "
                    f"{len(data)} of {size} bytes came"
                )
                return
            frame = np.frombuffer(data, np.uint8).reshape(shape)
            yield frame if self.form.layout is Layout.NV12 else self.form.to_rgb(frame)

    def _read(self, size: int) -> bytearray:
        """Read `size` bytes in as many parts as the pipe needs; fewer at the end of the stream."""
        data = bytearray()
        while len(data) < size and (part := self._stream.read(size - len(data))):
            data += part
        return data


def _reason(error: Exception) -> str:
    """FFmpeg's message, except for a timeout, which it calls `Immediate exit requested`."""
    if isinstance(error, load("av").error.ExitError):
        return f"nothing came for {PATIENCE_S:g} s"
    return getattr(error, "strerror", None) or str(error)


def _camera(place: str) -> dict[str, Any]:
    """FFmpeg's arguments for opening a camera on this platform."""
    if sys.platform == "darwin":
        return {"file": place, "format": "avfoundation", "timeout": PATIENCE_S}
    if sys.platform == "win32":
        raise Unsupported("on Windows cameras have no index; pass the URL of a network stream")
    device = f"/dev/video{place}" if place.isdecimal() else place
    return {"file": device, "format": "v4l2", "timeout": PATIENCE_S}


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES
