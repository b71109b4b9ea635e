"""Recordings are decoded by frames, and damage costs no more frames than decoding one by one."""

import random
from zlib import crc32

import av
import numpy as np
import pytest

from mrcfa.video.sources import Span, Video, VideoFile, open_source

SIZE, FRAMES = (48, 64), 40


class OneByOne(VideoFile):
    _frames_of = Video._frames_of


def recording(path, codec, pixels, container, group=12):
    """Moving fields of colours, encoded; returns where each packet is, and its length."""
    fields = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    picture = fields.repeat(8, 0).repeat(8, 1)
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = SIZE[1], SIZE[0], pixels
        stream.codec_context.gop_size = group
        for number in range(FRAMES):
            image = np.roll(picture, 3 * number, axis=1)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode(None))
    with av.open(str(path)) as file:
        return [(packet.pos, packet.size) for packet in file.demux(video=0) if packet.size]


def read(source):
    """A checksum of each frame, and the complaint of the source at the end."""
    return [crc32(frame.image.tobytes()) for frame in source], source.complaint


def damage(path, packets, numbers, seed=0):
    """Noise in the packets of these numbers."""
    chance, data = random.Random(seed), bytearray(path.read_bytes())
    for number in numbers:
        start, size = packets[number]
        data[start : start + size] = chance.randbytes(size)
    path.write_bytes(data)


KINDS = [("libx264", "yuv420p", "mp4"), ("png", "rgb24", "mov"), ("ffv1", "yuv420p", "matroska")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("where", [(), (17,), (18, 20, 30), (-1,), (0,)], ids=str)
def test_damage_costs_as_many_frames_as_one_by_one(kind, where, tmp_path):
    path = tmp_path / "a"
    damage(path, recording(path, *kind), where)
    frames, complaint = read(VideoFile(path, Span()))
    wanted, told = read(OneByOne(path, Span()))
    assert (len(frames), complaint) == (len(wanted), told)
    assert len(wanted) >= FRAMES - 12 * bool(where) or where == (0,)
    before = min((number % FRAMES for number in where), default=FRAMES) // 12 * 12
    assert frames[:before] == wanted[:before]


def test_a_truncated_stream_gives_all_that_came(tmp_path):
    path = tmp_path / "a"
    recording(path, "mpeg2video", "yuv420p", "mpegts")
    path.write_bytes(path.read_bytes()[:-3000])
    found, wanted = read(VideoFile(path, Span())), read(OneByOne(path, Span()))
    assert found == wanted
    assert 0 < len(found[0]) <= FRAMES


def test_a_reader_that_leaves_early_can_read_again(tmp_path):
    path = tmp_path / "a"
    recording(path, *KINDS[0])
    for _ in range(3):
        frames = iter(open_source(str(path)))
        assert next(frames).name == "000000"
        frames.close()
