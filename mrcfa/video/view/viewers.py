"""One open page: it asks for frames, and gets the newest one that it has not seen.

A page says an input's number when it is ready for a frame of that input, and nothing else. So a
page that is slow, hidden or on a bad line gets fewer frames, little is ever under way to it, and
nobody else waits for it.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import WSCloseCode, WSMsgType, web

from mrcfa.video.view.screens import Screen

WINDOW = 2
"""Frames of an input that a page may ask for ahead: one is on its way while one is drawn."""
_LONGEST_REQUEST = 8


@dataclass
class News:
    """What all viewers are told in words; `number` counts up with every text."""

    text: str = ""
    number: int = 0
    ended: bool = False

    def tell(self, **facts: object) -> None:
        self.text, self.number = json.dumps(facts), self.number + 1


@dataclass
class Want:
    """What a page wants of one input."""

    frames: int = 0
    last: int | None = None
    """Number of the frame that was sent last."""
    skipped: int = 0
    """Frames that a newer one replaced before this page was ready."""


@dataclass(eq=False)
class Viewer:
    socket: web.WebSocketResponse
    screens: Sequence[Screen]
    news: News
    wants: list[Want] = field(init=False)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send."""

    def __post_init__(self) -> None:
        self.wants = [Want() for _ in self.screens]

    async def attend(self, greeting: str) -> None:
        """Until the page or the run ends."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._send(greeting))}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self.socket:
            number = _number(message.data) if message.type is WSMsgType.TEXT else None
            if number is None or number >= len(self.wants):
                await self.socket.close(code=WSCloseCode.POLICY_VIOLATION)
                return
            self.wants[number].frames = min(self.wants[number].frames + 1, WINDOW)
            self.woken.set()

    async def _send(self, greeting: str) -> None:
        await self.socket.send_str(greeting)
        told = 0
        while True:
            self.woken.clear()
            ended = self.news.ended
            for number in range(len(self.screens)):
                await self._send_newest(number)
            if told != self.news.number:
                told = self.news.number
                await self.socket.send_str(self.news.text)
            if ended:
                await self.socket.close()
                return
            await self.woken.wait()

    async def _send_newest(self, number: int) -> None:
        screen, want = self.screens[number], self.wants[number]
        if not want.frames or screen.shot is None or screen.shot.number == want.last:
            return
        packet = await screen.packet()
        newest = packet.facts["number"]
        want.skipped += newest - want.last - 1 if want.last is not None else 0
        want.last = newest
        want.frames -= 1
        await self.socket.send_bytes(packet.message(input=number, skipped=want.skipped))


def _number(text: str) -> int | None:
    short = len(text) <= _LONGEST_REQUEST
    return int(text) if short and text.isascii() and text.isdecimal() else None
