"""Decoding of a recording by all cores, each at another frame, without losing frames to damage.

Beside a damaged packet, decoders that work on several frames at once lose good frames too. So the
packets of the frames under way are kept. After damage a second decoder, which works on one frame at
a time, decodes them again and goes on from there.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

KEPT_BYTES = 256 << 20
"""The most bytes of kept packets. A recording with fewer keyframes is decoded without them."""

Lose = Callable[[Exception], None]


def decoded(packets: Iterator[Any], spare: Callable[[], Any], lose: Lose) -> Iterator[Any]:
    """All frames that can be decoded; `lose` is called for every packet that cannot.

    `spare` opens the second decoder. Frames and packets are PyAV's.
    """
    kept = _Kept()
    broken: list[Exception] = []
    packets = _until_error(packets, broken)
    for packet in packets:
        kept.add(packet)
        try:
            frames = packet.decode()
        except Exception as error:
            if kept.usable:
                break
            lose(error)
            continue
        for frame in frames:
            yield frame
            kept.note(frame)
    if kept.incomplete:
        again = chain(kept.packets, packets)
        for frame in one_at_a_time(again, spare(), lose):
            if frame.pts is None or frame.pts not in kept.given:
                yield frame
    if broken:
        raise broken[0]


def one_at_a_time(packets: Iterator[Any], decoder: Any, lose: Lose) -> Iterator[Any]:
    """The frames of these packets by this decoder."""
    for packet in packets:
        try:
            frames = decoder.decode(packet)
        except Exception as error:
            lose(error)
        else:
            yield from frames


class _Kept:
    """The packets from the last keyframe on that is not after the last frame that was decoded.

    They cannot be used without time stamps, or if they are too large.
    """

    def __init__(self) -> None:
        self.packets: deque[Any] = deque()
        self.usable = True
        self._given: tuple[set[int], set[int]] = (set(), set())
        """Time stamps of the frames before and after the first packet; some may be in between."""
        self._keyframes: deque[int] = deque()
        """Time stamps of the keyframes after the first packet."""
        self._bytes = 0

    @property
    def given(self) -> set[int]:
        """Time stamps of the last frames that were decoded."""
        return self._given[0] | self._given[1]

    @property
    def incomplete(self) -> bool:
        """True if packets have no frame yet. Decoders can lose the last ones without an error."""
        given = self.given
        return self.usable and any(each.size and each.pts not in given for each in self.packets)

    def add(self, packet: Any) -> None:
        if packet.is_keyframe and packet.size and self.packets:
            self._keyframes.append(packet.pts)
        self.packets.append(packet)
        self._bytes += packet.size
        timed = packet.pts is not None or not packet.size
        self.usable = self.usable and timed and self._bytes <= KEPT_BYTES
        if not self.usable:
            self.packets.clear()
            self._keyframes.clear()

    def note(self, frame: Any) -> None:
        """Note that the frame was decoded, and forget what is not needed any more."""
        if not self.usable or frame.pts is None:
            return
        self._given[1].add(frame.pts)
        while self._keyframes and self._keyframes[0] <= frame.pts:
            start = self._keyframes.popleft()
            while self.packets[0].pts != start or not self.packets[0].is_keyframe:
                self._bytes -= self.packets.popleft().size
            self._given = self._given[1], set()


def _until_error(packets: Iterator[Any], broken: list[Exception]) -> Iterator[Any]:
    """The packets; an error while reading ends them and is put into the list."""
    try:
        yield from packets
    except Exception as error:
        broken.append(error)
