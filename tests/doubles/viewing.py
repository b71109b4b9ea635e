"""A live view with a formula for a model, and those who look at it."""

import asyncio
import json
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from typing import Any

import numpy as np
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from PIL import Image

from mrcfa.video.feed import Arrival
from mrcfa.video.segment import Tally
from mrcfa.video.sources import Frame
from mrcfa.video.style import Look
from mrcfa.video.view.address import listen
from mrcfa.video.view.server import View

CLASSES = ("sky", "car", "street_lamp")
PALETTE = np.array([(70, 130, 180), (220, 20, 60), (250, 170, 30)], np.uint8)
PATIENCE_S = 60


@contextmanager
def viewing(*names: str, place: str = "0", look: Look | None = None, **how: Any) -> Iterator[View]:
    with (
        closing(listen(place)) as listener,
        View(listener, names or ("front",), CLASSES, PALETTE, look or Look(), **how) as view,
    ):
        yield view


def halves(size: tuple[int, int] = (96, 160), brightness: int = 128) -> tuple[Any, Any]:
    """A grey frame, and a mask of sky in its left and car in its right half."""
    mask = np.zeros(size, np.uint8)
    mask[:, size[1] // 2 :] = 1
    return np.full((*size, 3), brightness, np.uint8), mask


def show(view: View, number: int = 0, pair: tuple[Any, Any] | None = None, **tally: int) -> None:
    """Show a mask, as the pipeline does with each."""
    image, mask = pair or halves()
    arrival = Arrival(Frame("000000", image), view.screens[number]._clock())
    view.screens[number].show(arrival, mask, Tally(**tally))


def visit(view: View, tour: Any) -> Any:
    """`await tour(page)`, a page being open."""

    async def walk() -> Any:
        async with opened(view) as page:
            return await tour(page)

    return asyncio.run(asyncio.wait_for(walk(), PATIENCE_S))


class opened:
    """A page without a browser: `async with opened(view) as page`."""

    def __init__(self, view: View, **how: Any) -> None:
        base, _, self.query = view.url.partition("?")
        self.address, self.how = f"{base}stream?{self.query}", how

    async def __aenter__(self) -> "Page":
        self._session = ClientSession()
        try:
            page = Page(await self._session.ws_connect(self.address, max_msg_size=0, **self.how))
        except BaseException:
            await self._session.close()
            raise
        page.greeting = json.loads(await page.socket.receive_str())
        return page

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()


class Page:
    greeting: dict[str, Any]

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self.news: list[dict[str, Any]] = []

    async def frame(self, number: int = 0) -> tuple[dict[str, int], Any, Any]:
        """Asks for a frame of an input: its facts, the picture and the mask."""
        await self.socket.send_str(str(number))
        while True:
            message = await self.socket.receive()
            if message.type is WSMsgType.BINARY:
                return _parsed(message.data)
            assert message.type is WSMsgType.TEXT, message
            self.news.append(json.loads(message.data))

    async def until_told(self, condition: Any) -> dict[str, Any]:
        """The first news that fulfil the condition."""
        while True:
            news = json.loads(await self.socket.receive_str())
            if condition(news):
                return news


def _parsed(data: bytes) -> tuple[dict[str, int], Any, Any]:
    line, _, body = data.partition(b"\n")
    facts = json.loads(line)
    picture = np.asarray(Image.open(BytesIO(body[: facts["jpeg"]])))
    mask = np.frombuffer(zlib.decompress(body[facts["jpeg"] :]), np.uint8)
    return facts, picture, mask.reshape(facts["height"], facts["width"])
