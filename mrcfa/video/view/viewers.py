"""Viewers: each open page requests frames and gets the newest one that it has not seen.

A page sends the number of an input when it is ready for a frame of it, and nothing else. So a page
that is slow, hidden or on a bad connection gets fewer frames and does not delay others.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import WSCloseCode, WSMsgType, web

from mrcfa.video.view.screens import Screen

WINDOW = 2
"""Largest number of open requests per input: one frame is sent while another is drawn."""
_LONGEST_REQUEST = 8


@dataclass
class Status:
    """The status of all inputs as JSON text for the viewers; `number` increases with each text."""

    text: str = ""
    number: int = 0
    ended: bool = False

    def publish(self, **facts: object) -> None:
        self.text, self.number = json.dumps(facts), self.number + 1


@dataclass
class Demand:
    """One page's demand for frames of one input."""

    frames: int = 0
    """Number of open requests."""
    last: int | None = None
    """Number of the last frame sent."""
    skipped: int = 0
    """Number of frames replaced by newer ones before the page was ready."""


@dataclass(eq=False)
class Viewer:
    """One open page."""

    socket: web.WebSocketResponse
    screens: Sequence[Screen]
    status: Status
    demands: list[Demand] = field(init=False)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send."""

    def __post_init__(self) -> None:
        self.demands = [Demand() for _ in self.screens]

    async def attend(self, greeting: str) -> None:
        """Serve the page until it closes or the run ends."""
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
            if number is None or number >= len(self.demands):
                await self.socket.close(code=WSCloseCode.POLICY_VIOLATION)
                return
            self.demands[number].frames = min(self.demands[number].frames + 1, WINDOW)
            self.woken.set()

    async def _send(self, greeting: str) -> None:
        await self.socket.send_str(greeting)
        sent = 0
        while True:
            self.woken.clear()
            ended = self.status.ended
            for number in range(len(self.screens)):
                await self._send_newest(number)
            if sent != self.status.number:
                sent = self.status.number
                await self.socket.send_str(self.status.text)
            if ended:
                await self.socket.close()
                return
            await self.woken.wait()

    async def _send_newest(self, number: int) -> None:
        screen, demand = self.screens[number], self.demands[number]
        if not demand.frames or screen.shot is None or screen.shot.number == demand.last:
            return
        packet = await screen.packet()
        newest = packet.facts["number"]
        demand.skipped += newest - demand.last - 1 if demand.last is not None else 0
        demand.last = newest
        demand.frames -= 1
        await self.socket.send_bytes(packet.message(input=number, skipped=demand.skipped))


def _number(text: str) -> int | None:
    short = len(text) <= _LONGEST_REQUEST
    return int(text) if short and text.isascii() and text.isdecimal() else None
