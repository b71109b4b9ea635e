"""Media files with damage where their formats have structure: boxes, chunks, headers."""

import io
import zlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from mrcfa.video.sinks import open_sink

SEED = 40
SIZE = (48, 64)
FRAMES = {"mp4": 5, "png": 1, "jpg": 1, "ppm": 1}
"""How many an undamaged file of each kind has."""
CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"dinf", b"udta", b"moof"}
NUMBERS = [0, 1, 2, 7, 8, 255, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1]


def whole_files(folder: Path) -> dict[str, bytes]:
    """The bytes of an undamaged file of each kind."""
    pictures = np.random.default_rng(SEED).integers(0, 256, (5, *SIZE, 3), np.uint8)
    video = folder / "a.mp4"
    with open_sink(str(video), (), np.zeros((0, 3), np.uint8), Fraction(15)) as write:
        for picture in pictures:
            write("", picture)
    image = Image.fromarray(pictures[0])
    palette = image.quantize(64)
    palette.info["gamma"] = 0.45
    made = {kind: io.BytesIO() for kind in ("png", "jpg", "ppm")}
    palette.save(made["png"], "PNG", transparency=3, dpi=(72, 72))
    image.save(made["jpg"], "JPEG", progressive=True, comment=b"a comment", dpi=(72, 72))
    image.save(made["ppm"], "PPM")
    return {"mp4": video.read_bytes()} | {kind: file.getvalue() for kind, file in made.items()}


def damaged_files(kind: str, data: bytes, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield damaged(kind, data, Random(f"{SEED} {kind} {number}"))


def damaged(kind: str, data: bytes, chance: Random) -> bytes:
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


def boxes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
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


def chunks(data: bytes) -> Iterator[tuple[int, int]]:
    """Where every chunk of a PNG starts and ends."""
    start = 8
    while start + 12 <= len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4], "big")
        yield start, end
        start = end


def with_number(data: bytes, chance: Random, start: int, end: int) -> bytes:
    """A number that hurts, somewhere in this part."""
    width = chance.choice((1, 2, 4))
    place = chance.randrange(start, max(start + 1, end - width))
    number = (chance.choice(NUMBERS) & (256**width - 1)).to_bytes(width, "big")
    return data[:place] + number + data[place + width :]


def with_noise(data: bytes, chance: Random, start: int, end: int) -> bytes:
    spot = chance.randrange(start, end)
    noise = chance.randbytes(chance.randint(1, 16))
    return data[:spot] + noise + data[spot + len(noise) :]


def without(data: bytes, chance: Random, start: int, end: int) -> bytes:
    return data[:start] + data[end:]


def twice(data: bytes, chance: Random, start: int, end: int) -> bytes:
    return data[:end] + data[start:end] + data[end:]


def elsewhere(data: bytes, chance: Random, start: int, end: int) -> bytes:
    rest = data[:start] + data[end:]
    place = chance.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def cut_off(data: bytes, chance: Random, start: int, end: int) -> bytes:
    return data[: chance.randrange(start, end)]


DAMAGES = [with_number, with_number, with_number, with_noise, without, twice, elsewhere, cut_off]
