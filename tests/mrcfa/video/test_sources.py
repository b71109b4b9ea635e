"""Every kind of input, and every way in which it can be odd, damaged or missing."""

import io
import socket
import sys
import threading
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zlib import compress, crc32

import av
import numpy as np
import pytest
from naming import names, naming
from PIL import Image

from mrcfa.data.images import read_image
from mrcfa.errors import (
    Damaged,
    InvalidValue,
    MrcfaError,
    NotFound,
    RuntimeFailed,
    Unsupported,
)
from mrcfa.machine.extras import MissingExtra
from mrcfa.video.sinks import open_sink
from mrcfa.video.sources import Span, open_source


def pictures(frames=30, height=96, width=160):
    """Frames that can be told apart after compression: frame t has brightness 4·t."""
    return [np.full((height, width, 3), 4 * t, np.uint8) for t in range(frames)]


def write_mp4(path, frames, rate=Fraction(15)):
    with open_sink(str(path), (), np.zeros((0, 3), np.uint8), rate) as write:
        for frame in frames:
            write("", frame)
    return path


def write_with_av(path, frames, codec, pixel_format, rotation=0, aspect=1):
    height, width = frames[0].shape[:2]
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=15)
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        stream.codec_context.sample_aspect_ratio = Fraction(aspect)
        if rotation:
            stream.set_display_rotation(rotation)
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode(None))
    return path


def numbers(source):
    """Which of `pictures` the source gave."""
    return [round(frame.image.mean() / 4) for frame in source]


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return write_mp4(tmp_path_factory.mktemp("video") / "street.mp4", pictures())


@pytest.fixture
def folder(tmp_path):
    for t, picture in enumerate(pictures(12)):
        Image.fromarray(picture).save(tmp_path / f"frame{t}.png")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_a_video_gives_all_its_frames_in_order(video):
    source = open_source(str(video))
    assert (source.rate, source.total) == (15, 30)
    frames = list(source)
    assert [frame.name for frame in frames[:2]] == ["000000", "000001"]
    assert frames[0].image.shape == (96, 160, 3)
    assert [round(frame.image.mean() / 4) for frame in frames] == list(range(30))
    assert source.complaint is None


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span(start=1), range(15, 30)),
        (Span(start=0.5, end=1), range(8, 15)),
        (Span(stride=7), range(0, 30, 7)),
        (Span(start=1, end=1.8, stride=4), range(15, 27, 4)),
    ],
)
def test_a_part_of_a_video_is_given_by_seconds_and_stride(video, span, expected):
    source = open_source(str(video), span)
    assert numbers(source) == list(expected)
    assert source.total == len(expected)
    assert source.rate == Fraction(15, span.stride)
    assert source.complaint is None


@pytest.mark.parametrize("span", [Span(start=0.3, stride=2), Span(end=0.4)])
def test_the_same_part_of_a_folder_has_the_same_frames(folder, video, span):
    images = numbers(open_source(str(folder), span, rate=Fraction(15)))
    assert images == [number for number in numbers(open_source(str(video), span)) if number < 12]


def test_a_stretch_of_time_ends_after_it_starts():
    with pytest.raises(InvalidValue, match=naming("--start 3", "--end 2")):
        Span(start=3, end=2)


def test_a_video_of_one_frame_is_a_video(tmp_path):
    source = open_source(str(write_mp4(tmp_path / "one.mp4", pictures(1))))
    assert (numbers(source), source.total, source.complaint) == ([0], 1, None)


def test_an_odd_width_is_kept(tmp_path):
    path = write_with_av(tmp_path / "odd.mkv", pictures(3, width=161), "ffv1", "bgr0")
    assert [frame.image.shape for frame in open_source(str(path))] == [(96, 161, 3)] * 3


def test_a_portrait_video_is_upright_and_contiguous(tmp_path):
    lying = np.zeros((96, 160, 3), np.uint8)
    lying[:, 120:] = 255  # the right edge is up when turned counterclockwise
    path = write_with_av(tmp_path / "phone.mp4", [lying] * 2, "libx264", "yuv420p", rotation=90)
    for frame in open_source(str(path)):
        assert frame.image.shape == (160, 96, 3)
        assert frame.image[:30].min() > 240
        assert frame.image[50:].max() < 15
        assert frame.image.flags.c_contiguous


@pytest.mark.parametrize("start", [0, 0.5])
def test_a_truncated_video_gives_what_decodes_and_says_how_much_is_lost(tmp_path, start):
    random = np.random.default_rng(0)
    noise = [random.integers(0, 255, (96, 160, 3), np.uint8) for _ in range(30)]
    path = write_mp4(tmp_path / "cut.mp4", noise)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    source = open_source(str(path), Span(start=start))
    frames = len(list(source))
    due = 30 if start == 0 else 22
    assert 0 < frames < due
    assert names(source.complaint, f"{due - frames} of {due} frames", path)


def test_a_video_cut_off_before_its_first_frame_has_lost_all(tmp_path):
    path = write_mp4(tmp_path / "cut.mp4", pictures())
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"mdat") + 20])
    source = open_source(str(path))
    assert list(source) == []
    assert names(source.complaint, "30 of 30 frames", path)


def test_a_trimmed_video_has_lost_nothing(tmp_path):
    """Cutting without encoding leaves frames in the file that are not meant to be shown."""
    path = tmp_path / "trimmed.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=15)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        packets = []
        for picture in pictures():
            packets += stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24"))
        for packet in packets + stream.encode(None):
            packet.pts, packet.dts = packet.pts - 10, packet.dts - 10
            file.mux(packet)
    source = open_source(str(path))
    assert numbers(source) == list(range(10, 30))
    assert source.complaint is None


@pytest.mark.parametrize(("rotation", "expected"), [(0, Fraction(2)), (90, Fraction(1, 2))])
def test_the_aspect_of_a_pixel_is_that_of_the_upright_picture(tmp_path, rotation, expected):
    path = write_with_av(tmp_path / "wide.mp4", pictures(2), "libx264", "yuv420p", rotation, 2)
    source = open_source(str(path))
    assert len(list(source)) == 2
    assert source.aspect == expected


def test_metadata_in_any_encoding_does_no_harm(tmp_path):
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as file:
        file.metadata["title"] = "MARKED"
        stream = file.add_stream("libx264", rate=15)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        file.mux(stream.encode(av.VideoFrame.from_ndarray(pictures(1)[0], format="rgb24")))
        file.mux(stream.encode(None))
    data = path.read_bytes()
    assert b"MARKED" in data
    path.write_bytes(data.replace(b"MARKED", b"\xff\xfe\x80ED\xc3"))
    assert len(list(open_source(str(path)))) == 1


@pytest.mark.parametrize("name", ["12:30:00.mp4", "http:cam.mp4", "shot%03d.ppm"])
def test_a_file_is_a_file_whatever_its_name_looks_like(tmp_path, monkeypatch, video, name):
    monkeypatch.chdir(tmp_path)
    if name.endswith(".mp4"):
        (tmp_path / name).write_bytes(video.read_bytes())
    else:
        for each in (name, "shot000.ppm", "shot001.ppm"):
            Image.fromarray(pictures(1)[0]).save(each)
    assert len(list(open_source(name))) == (30 if name.endswith(".mp4") else 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{video}\n#EXT-X-ENDLIST\n"),
        ("a.ffconcat", "ffconcat version 1.0\nfile {video}\n"),
        ("a.sdp", "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"),
    ],
)
def test_a_file_that_names_other_places_is_not_followed(tmp_path, video, name, content):
    (tmp_path / "street.mp4").write_bytes(video.read_bytes())
    (tmp_path / name).write_text(content.format(video="street.mp4"))
    with pytest.raises(Unsupported, match=naming(tmp_path / name)):
        open_source(str(tmp_path / name))


@pytest.fixture
def served(video):
    """The video under a URL whose server hangs up after the share of it in the path."""
    data = video.read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: int(len(data) * float(self.path[1:].partition("?")[0]))])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_url_is_read_like_a_file(served):
    source = open_source(f"{served}/1")
    assert not source.live
    assert numbers(source) == list(range(30))
    assert source.complaint is None


def test_a_stream_that_breaks_off_gives_what_came_and_says_so(served):
    source = open_source(f"{served}/0.9")
    frames = numbers(source)
    assert frames == list(range(30))[: len(frames)]
    assert 0 < len(frames) < 30
    assert names(source.complaint, f"{30 - len(frames)} of 30 frames", f"{served}/0.9")


def test_no_message_shows_the_password_of_an_address(served):
    secret = served.replace("//", "//me:secret@")
    source = open_source(f"{secret}/0.9?token=secret")
    assert len(list(source)) < 30
    assert "secret" not in source.complaint
    assert "secret" not in source.name
    with pytest.raises(NotFound) as refused:
        open_source("rtsp://me:secret@127.0.0.1:9/gone")
    assert "secret" not in str(refused.value)


def test_a_stream_that_stays_silent_is_told_in_seconds(monkeypatch):
    monkeypatch.setattr("mrcfa.video.sources.PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotFound) as refused:
        open_source(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert names(str(refused.value), "127.0.0.1", "0.2")


def test_a_playlist_of_a_network_names_no_local_file(tmp_path, video):
    """FFmpeg forbids this by itself; it must not be allowed by our own list of protocols."""
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:{video}\n#EXT-X-ENDLIST\n"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.apple.mpegurl")
            self.end_headers()
            self.wfile.write(playlist.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(MrcfaError):
                list(open_source(f"http://127.0.0.1:{server.server_port}/live.m3u8"))
        finally:
            server.shutdown()


def test_a_video_whose_length_is_below_zero_is_still_read(tmp_path):
    path = write_mp4(tmp_path / "a.mp4", pictures(5))
    data = bytearray(path.read_bytes())
    durations = data.index(b"stts")
    data[durations + 11] = 128  # entries, of which there is one: the others are what comes next
    data[durations + 18] = 255
    path.write_bytes(data)
    with av.open(str(path)) as file:
        assert file.streams.video[0].duration < 0
    assert numbers(open_source(str(path)))[:1] == [0]


def test_a_video_whose_index_is_missing_cannot_be_opened(tmp_path):
    (tmp_path / "junk.mp4").write_bytes(b"no video" * 100)
    with pytest.raises(Damaged, match=naming(tmp_path / "junk.mp4")):
        open_source(str(tmp_path / "junk.mp4"))


def test_an_unknown_codec_is_named_as_the_reason(tmp_path):
    path = write_mp4(tmp_path / "strange.mp4", pictures(2))
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz"))
    with pytest.raises(Unsupported, match=naming(path, "codec", "FFmpeg")):
        open_source(str(path))


def test_sound_alone_is_no_video(tmp_path):
    path = tmp_path / "sound.wav"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        sound.sample_rate = 8000
        file.mux(stream.encode(sound))
    with pytest.raises(NotFound, match=naming(path)):
        open_source(str(path))


def test_a_folder_gives_its_images_in_natural_order_under_their_names(folder):
    source = open_source(str(folder))
    assert (source.rate, source.total) == (25, 12)
    frames = list(source)
    assert [frame.name for frame in frames] == [f"frame{t}" for t in range(12)]
    assert [round(frame.image.mean() / 4) for frame in frames] == list(range(12))


def test_a_glob_takes_the_images_that_match(folder):
    assert numbers(open_source(str(folder / "frame1*"))) == [1, 10, 11]


def test_a_single_image_is_a_source_of_one_frame(folder):
    assert [frame.name for frame in open_source(str(folder / "frame3.png"))] == ["frame3"]


def test_images_that_share_a_stem_are_numbered(tmp_path):
    for suffix in ("png", "jpg"):
        Image.fromarray(pictures(1)[0]).save(tmp_path / f"a.{suffix}")
    assert [frame.name for frame in open_source(str(tmp_path))] == ["000000", "000001"]


def test_images_of_mixed_sizes_keep_theirs(tmp_path):
    for t, size in enumerate([(96, 160), (160, 96), (33, 47)]):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(tmp_path / f"{t}.png")
    shapes = [frame.image.shape[:2] for frame in open_source(str(tmp_path))]
    assert shapes == [(96, 160), (160, 96), (33, 47)]


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (Image.new("L", (8, 6), 200), 200),
        (Image.new("LA", (8, 6), (200, 0)), 200),
        (Image.new("RGBA", (8, 6), (200, 200, 200, 10)), 200),
        (Image.fromarray(np.full((6, 8), 200 << 8, np.uint16)), 200),
        (Image.new("1", (8, 6), 1), 255),
    ],
    ids=["grey", "grey and alpha", "alpha", "16 bits", "1 bit"],
)
def test_images_of_every_mode_become_rgb(tmp_path, picture, expected):
    picture.save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert image.shape == (6, 8, 3)
    assert image.dtype == np.uint8
    assert (image == expected).all()


def test_a_photo_is_turned_as_its_camera_was_held(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: the camera was turned by 90 degrees
    Image.new("RGB", (8, 6)).save(tmp_path / "a.jpg", exif=exif)
    assert read_image(tmp_path / "a.jpg").shape == (8, 6, 3)


def test_images_that_cannot_be_read_are_left_out_and_named(folder):
    (folder / "frame5.png").write_bytes(b"no image")
    source = open_source(str(folder))
    assert len(list(source)) == 11
    assert names(source.complaint, "1 of 12 frames", folder, "frame5.png")


def test_an_image_that_breaks_its_decoder_is_a_lost_frame(folder):
    """Each of Pillow's formats has errors of its own, and a bomb is one more."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + crc32(kind + data).to_bytes(4, "big")

    data = (folder / "frame5.png").read_bytes()
    huge = chunk(b"IHDR", (60000).to_bytes(4, "big") * 2 + data[24:29])
    long_text = chunk(b"zTXt", b"a\0\0" + compress(bytes(1 << 24)))
    (folder / "frame5.png").write_bytes(data[:8] + huge + data[33:])
    (folder / "frame6.png").write_bytes(data[:33] + long_text + data[33:])
    source = open_source(str(folder))
    assert len(list(source)) == 10
    assert names(source.complaint, "frame5.png", "frame6.png")


def test_want_of_memory_is_no_damage(folder, monkeypatch):
    opened = Image.open

    def scarce(path):
        if path.name == "frame5.png":
            raise MemoryError
        return opened(path)

    monkeypatch.setattr(Image, "open", scarce)
    source = open_source(str(folder))
    assert len(list(source)) == 11
    assert names(source.complaint, "memory", "frame5.png")
    with pytest.raises(RuntimeFailed, match=naming("memory", folder / "frame5.png")):
        read_image(folder / "frame5.png")


def test_a_closed_standard_input_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(NotFound, match=naming("standard input")):
        open_source("-", raw=(6, 4))


def test_raw_frames_come_from_standard_input(monkeypatch):
    data = b"".join(picture.tobytes() for picture in pictures(5, 4, 6))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data + b"rest")))
    source = open_source("-", Span(start=0.04, stride=2), raw=(4, 6))
    frames = list(source)
    assert [frame.image.shape for frame in frames] == [(4, 6, 3)] * 2
    assert [int(frame.image.max()) // 4 for frame in frames] == [1, 3]
    assert names(source.complaint, "standard input", "4 of 72 bytes")


@pytest.mark.parametrize(
    ("place", "raw", "kind", "thing"),
    [
        ("nowhere.mp4", None, NotFound, "nowhere.mp4"),
        ("nowhere/*.png", None, NotFound, "nowhere/*.png"),
        ("-", None, InvalidValue, "--raw HEIGHTxWIDTH"),
        ("tests", (4, 6), InvalidValue, "tests"),
        ("/dev/null", None, NotFound, "/dev/null"),
        ("97", None, NotFound, "camera 97"),
        ("rtsp://127.0.0.1:9/gone", None, NotFound, "rtsp://127.0.0.1:9/gone"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(place, raw, kind, thing):
    with pytest.raises(kind, match=naming(thing)):
        open_source(place, raw=raw)


@pytest.mark.parametrize("sent", ["nothing", "a video's begin"])
def test_a_stream_that_stalls_is_told_by_how_long(sent, tmp_path, monkeypatch):
    monkeypatch.setattr("mrcfa.video.sources.PATIENCE_S", 0.5)
    began = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as client:
                if sent != "nothing":
                    client.sendall(transport_stream(tmp_path / "a.ts"))
                began.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        try:
            if sent == "nothing":
                with pytest.raises(NotFound, match=naming(place, "0.5 s")):
                    open_source(place)
            else:
                source = open_source(place)
                assert len(list(source)) > 0
                assert names(source.complaint, place, "0.5 s")
        finally:
            began.set()
            thread.join()


def transport_stream(path):
    with av.open(str(path), "w", format="mpegts") as file:
        stream = file.add_stream("mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for picture in np.random.default_rng(0).integers(0, 256, (25, 96, 160, 3), np.uint8):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        file.mux(stream.encode(None))
    return path.read_bytes()


def test_a_folder_without_images_says_what_is_read(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path, ".bmp", ".jpeg", ".jpg")):
        open_source(str(tmp_path))


@pytest.mark.parametrize(("package", "place"), [("av", "a.mp4"), ("PIL", "a.png")])
def test_a_missing_package_is_told_with_its_install_command(tmp_path, monkeypatch, package, place):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / place).touch()
    with pytest.raises(MissingExtra, match=naming(package, 'pip install ".[video]"')):
        list(open_source(str(tmp_path / place)))
