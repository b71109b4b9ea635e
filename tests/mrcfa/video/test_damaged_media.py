"""Media files with damage where their formats have structure: boxes, chunks, headers."""

import io
import zlib
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from PIL import Image

from mrcfa.errors import MrcfaError
from mrcfa.video.sinks import open_sink
from mrcfa.video.sources import open_source

SEED, COUNT = 40, 100
"""Of the files of each kind; a few thousand take a minute."""
SIZE = (48, 64)
CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"dinf", b"udta", b"moof"}
NUMBERS = [0, 1, 2, 7, 8, 255, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1]


def pictures(frames=5):
    return np.random.default_rng(SEED).integers(0, 256, (frames, *SIZE, 3), np.uint8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of an undamaged file of each kind."""
    video = tmp_path_factory.mktemp("whole") / "a.mp4"
    with open_sink(str(video), (), np.zeros((0, 3), np.uint8), Fraction(15)) as write:
        for picture in pictures():
            write("", picture)
    image, portable = io.BytesIO(), io.BytesIO()
    palette = Image.fromarray(pictures(1)[0]).quantize(64)
    palette.info["gamma"] = 0.45
    palette.save(image, "PNG", transparency=3, dpi=(72, 72))
    Image.fromarray(pictures(1)[0]).save(portable, "PPM")
    return {"mp4": video.read_bytes(), "png": image.getvalue(), "ppm": portable.getvalue()}


def boxes(data, start=0, end=None):
    """Where every box of an MP4 starts and ends, those inside others included."""
    end = len(data) if end is None else end
    while start + 8 <= end:
        size = int.from_bytes(data[start : start + 4], "big")
        if not 8 <= size <= end - start:
            return
        yield start, start + size
        if data[start + 4 : start + 8] in CONTAINERS:
            yield from boxes(data, start + 8, start + size)
        start += size


def chunks(data):
    """Where every chunk of a PNG starts and ends."""
    start = 8
    while start + 12 <= len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4], "big")
        yield start, end
        start = end


def with_number(data, chance, start, end):
    """A number that hurts, somewhere in this part."""
    width = chance.choice((1, 2, 4))
    place = chance.randrange(start, max(start + 1, end - width))
    number = (chance.choice(NUMBERS) & (256**width - 1)).to_bytes(width, "big")
    return data[:place] + number + data[place + width :]


def with_noise(data, chance, start, end):
    spot = chance.randrange(start, end)
    noise = chance.randbytes(chance.randint(1, 16))
    return data[:spot] + noise + data[spot + len(noise) :]


def without(data, chance, start, end):
    return data[:start] + data[end:]


def twice(data, chance, start, end):
    return data[:end] + data[start:end] + data[end:]


def elsewhere(data, chance, start, end):
    rest = data[:start] + data[end:]
    place = chance.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def cut_off(data, chance, start, end):
    return data[: chance.randrange(start, end)]


DAMAGES = [with_number, with_number, with_number, with_noise, without, twice, elsewhere, cut_off]


def damaged(kind, data, chance):
    for _ in range(chance.choice((1, 1, 2, 4))):
        if kind == "mp4":
            parts = list(boxes(data))
        elif kind == "png":
            parts = list(chunks(data))
        else:
            parts = [(0, 16), (0, 16), (0, len(data))]
        start, end = chance.choice(parts or [(0, len(data))])
        start = min(start, len(data) - 1)
        end = max(start + 1, min(end, len(data)))
        data = chance.choice(DAMAGES)(data, chance, start, end) or b"\0"
    if kind == "png" and chance.random() < 0.8:  # so that the damage gets past the checksums
        for start, end in list(chunks(data)):
            if end <= len(data):
                checksum = zlib.crc32(data[start + 4 : end - 4])
                data = data[: end - 4] + checksum.to_bytes(4, "big") + data[end:]
    return data


def damaged_files(kind, data, seed, count):
    for number in range(count):
        yield damaged(kind, data, Random(f"{seed} {kind} {number}"))


def read(path):
    """How many frames the file gives; what cannot be opened gives its kind of error."""
    try:
        source = open_source(str(path))
    except MrcfaError as error:
        return type(error).__name__
    shapes = [frame.image.shape for frame in source]
    assert all(len(shape) == 3 and shape[2] == 3 for shape in shapes)
    return len(shapes)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", ["mp4", "png", "ppm"])
def test_a_damaged_file_gives_its_frames_or_a_sentence(kind, whole, tmp_path):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(whole[kind])
    assert read(path) == (5 if kind == "mp4" else 1)
    for data in damaged_files(kind, whole[kind], SEED, COUNT):
        path.write_bytes(data)
        read(path)
