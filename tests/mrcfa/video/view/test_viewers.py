"""Viewers get the newest frame, each at its own pace, encoded once; the pipeline never waits."""

import asyncio
import base64
import gc
import os
import socket
import threading
import weakref
from contextlib import AsyncExitStack
from fractions import Fraction

import numpy as np
import pytest
from aiohttp import WSServerHandshakeError
from browser import until
from viewing import PATIENCE_S, opened, show, viewing, visit

from mrcfa.video.feed import Arrival
from mrcfa.video.rounds import Sequential
from mrcfa.video.segment import Input, Tally, segment
from mrcfa.video.sources import Frame, Source
from mrcfa.video.style import Look
from mrcfa.video.view import screens
from mrcfa.video.view.server import MOST_VIEWERS


@pytest.fixture
def encodings(monkeypatch):
    """The numbers of the frames that were encoded."""
    numbers, real = [], screens.encoded

    def counted(shot):
        numbers.append(shot.number)
        return real(shot)

    monkeypatch.setattr(screens, "encoded", counted)
    return numbers


def noise(size, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (*size, 3), np.uint8), random.integers(0, 3, size, np.uint8)


def test_a_viewer_gets_the_frame_and_the_exact_mask():
    mask = noise((96, 160))[1]
    image = np.zeros((96, 160, 3), np.uint8)
    image[:, :80] = (200, 30, 60)
    with viewing(look=Look(alpha=0.25, only=("car",)), backend="a formula") as view:
        show(view, pair=(image, mask))

        async def look(page):
            facts, picture, classes = await page.frame()
            assert facts["number"] == 1
            np.testing.assert_array_equal(classes, mask)
            assert np.abs(picture.astype(int) - image).mean() < 3
            return page.greeting

        greeting = visit(view, look)
    assert greeting["inputs"] == ["front"]
    assert greeting["classes"] == ["sky", "car", "street_lamp"]
    assert greeting["palette"][1] == [220, 20, 60]
    assert (greeting["alpha"], greeting["shown"], greeting["backend"]) == (0.25, [1], "a formula")


def test_large_pictures_are_sent_smaller_and_odd_ones_whole():
    for size, sent in (((1081, 1921), (541, 961)), ((97, 161), (97, 161))):
        image, mask = noise(size)
        packet = screens.encoded(screens.Shot(1, image, mask))
        assert (packet.facts["height"], packet.facts["width"]) == sent


def test_a_slow_viewer_gets_the_newest_frame_and_knows_how_many_it_missed():
    with viewing() as view:
        show(view)

        async def look(page):
            assert (await page.frame())[0]["number"] == 1
            for _ in range(10):
                show(view)
            first = (await page.frame())[0]
            for _ in range(5):
                show(view)
            return first, (await page.frame())[0]

        first, second = visit(view, look)
    assert (first["number"], first["skipped"]) == (11, 9)
    assert (second["number"], second["skipped"]) == (16, 9 + 4)


def test_a_frame_is_encoded_once_for_all_and_only_if_somebody_wants_it(encodings):
    with viewing() as view:
        for _ in range(20):
            show(view)
        assert encodings == []

        async def look(page):
            async with opened(view) as other:
                assert encodings == []  # they look, and ask for nothing yet
                got = await asyncio.gather(page.frame(), other.frame())
                return [facts["number"] for facts, _, _ in got]

        assert visit(view, look) == [20, 20]
        assert encodings == [20]


def test_only_the_input_that_is_asked_for_is_sent(encodings):
    with viewing("front", "rear") as view:
        show(view, 0)
        show(view, 1)
        show(view, 1)

        async def look(page):
            return (await page.frame(1))[0]

        facts = visit(view, look)
        assert (facts["input"], facts["number"]) == (1, 2)
        assert encodings == [2]


ASK = b"\x81\x81\x00\x00\x00\x000"
"""A WebSocket's text "0", masked with zeros."""


def deaf(view):
    """A viewer that will not read."""
    port = view._listener.socket.getsockname()[1]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /stream HTTP/1.1", f"Host: localhost:{port}", "Upgrade: websocket"]
    lines += ["Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


class Noise(Source):
    def __init__(self, frames):
        super().__init__("noise", Fraction(30), None)
        self.frames = frames

    def __iter__(self):
        image = noise((480, 640))[0]
        for number in range(self.frames):
            yield Frame(f"{number:06d}", image)


class Blind:
    def __call__(self, frame):
        return np.zeros(frame.shape[:2], np.uint8)

    def reset(self):
        pass


def test_a_viewer_that_never_reads_holds_up_neither_the_pipeline_nor_other_viewers(monkeypatch):
    monkeypatch.setattr("mrcfa.video.view.server._IDLE_S", 600)  # it is there, on slow machines too
    with viewing() as view, deaf(view) as line:
        (stuck,) = until(lambda: list(view.viewers))
        seen = []

        async def look(page):
            while not seen or seen[-1] < 60:
                seen.append((await page.frame())[0]["number"])

        other = threading.Thread(target=visit, args=(view, look))
        other.start()
        until(lambda: len(view.viewers) == 2)

        def watch(*given):
            line.sendall(ASK)  # 18 MB in all, which no line holds
            view.screens[0].show(*given)
            until(lambda: seen and seen[-1] == view.screens[0].shot.number)

        one = Input(Noise(60), lambda image, mask: mask, lambda *_: None, watch=watch)
        done = segment([one], Sequential([Blind()]))
        other.join(PATIENCE_S)
        assert done.frames == 60
        assert seen == [*range(1, 61)]
        assert stuck in view.viewers
        assert 1 <= stuck.demands[0].last < 60


def test_closing_pages_frees_everything():
    with viewing() as view:
        show(view)

        async def tasks():
            return len(asyncio.all_tasks(view._loop))

        def counted():
            return asyncio.run_coroutine_threadsafe(tasks(), view._loop).result(PATIENCE_S)

        idle, ghosts = counted(), []

        async def open_and_leave():
            async with opened(view) as page:
                await page.frame()
                ghosts.extend(weakref.ref(viewer) for viewer in view.viewers)

        async def crowd():
            for _ in range(10):
                await asyncio.gather(*(open_and_leave() for _ in range(10)))

        asyncio.run(asyncio.wait_for(crowd(), PATIENCE_S))
        until(lambda: not view.viewers)
        until(lambda: counted() == idle)
        until(lambda: gc.collect() is not None and not any(ghost() for ghost in ghosts))
        assert len(set(map(id, ghosts))) >= 100


def test_one_page_too_many_is_refused_and_the_others_stay():
    with viewing() as view:
        show(view)

        async def look(page):
            async with AsyncExitStack() as stack:
                others = [
                    await stack.enter_async_context(opened(view)) for _ in range(MOST_VIEWERS - 1)
                ]
                with pytest.raises(WSServerHandshakeError, match="503"):
                    await stack.enter_async_context(opened(view))
                return [(await each.frame())[0]["number"] for each in (page, *others)]

        assert visit(view, look) == [1] * MOST_VIEWERS


@pytest.mark.parametrize("request_", ["1", "-1", "x", "", "²", "9" * 30, "{}", b"0", "0" * 99])
def test_a_page_that_asks_for_nonsense_is_sent_away(request_):
    with viewing() as view:
        show(view)

        async def look(page):
            if isinstance(request_, bytes):
                await page.socket.send_bytes(request_)
            else:
                await page.socket.send_str(request_)
            while not (await page.socket.receive()).type.name.startswith("CLOS"):
                pass
            return page.socket.close_code

        assert visit(view, look) in (1008, 1009)
        until(lambda: not view.viewers)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_rate_latency_and_drops_of_the_last_minute_are_kept():
    clock = Clock()
    screen = screens.Screen("front", None, lambda: None, clock)
    image, mask = noise((4, 6))
    for second in range(90):
        for _ in range(4):
            screen.show(Arrival(Frame("0", image), clock() - 0.05), mask, Tally(dropped=3 * second))
        clock.now += 2
        screen.sample()
    clock.now += 1
    screen.sample()
    assert len(screen.minute) == 60
    assert screen.minute[-2] == {"rate": 2, "latency": 50, "dropped": 1.5}
    assert screen.minute[-1] == {"rate": 0, "latency": None, "dropped": 0}
    assert (screen.facts()["frames"], screen.facts()["silent"]) == (360, 3)


def test_who_comes_late_is_told_the_last_minute():
    with viewing() as view:
        until(lambda: view.screens[0].minute)

        async def look(page):
            return page.greeting["minutes"]

        (minute,) = visit(view, look)
        assert minute[0].keys() == {"rate", "latency", "dropped"}


def test_states_and_the_end_are_told():
    with viewing("front", "rear") as view:
        show(view, 0, dropped=7)

        async def look(page):
            await page.frame()
            view.screens[1].set_state("lost", "rear broke off")
            news = await page.until_told(lambda news: news["inputs"][1]["state"] == "lost")
            assert news["inputs"][0]["dropped"] == 7
            assert news["inputs"][1]["message"] == "rear broke off"
            assert not news["ended"]
            closing = threading.Thread(target=view.close)
            closing.start()
            await page.until_told(lambda news: news["ended"])
            assert (await page.socket.receive()).type.name.startswith("CLOS")
            return closing, page.socket.close_code

        closing, code = visit(view, look)
        closing.join(PATIENCE_S)
        assert code == 1000
