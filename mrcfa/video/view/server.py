"""The server of the live view, in a thread beside the pipeline."""

import asyncio
import hashlib
import json
import logging
import os
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib import resources

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from mrcfa.video.feed import Clock
from mrcfa.video.overlay import class_index
from mrcfa.video.style import Look
from mrcfa.video.view.address import Listener
from mrcfa.video.view.guard import add_headers, guard
from mrcfa.video.view.screens import Screen
from mrcfa.video.view.temperature import temperature
from mrcfa.video.view.viewers import Status, Viewer

MOST_VIEWERS = 32
MOST_CONNECTIONS = 128
"""Largest number of open connections, so that file descriptors remain for files and cameras."""
_IDLE_S = 15
"""Seconds until a connection without requests is closed, and between pings to a viewer."""
_GRACE_S = 1
_PAUSE_S = 0.1
_NICE = 10
_LOG = logging.getLogger("mrcfa.view")
_LOG.addHandler(logging.NullHandler())  # errors in foreign requests do not belong on the terminal


class View:
    """The server, with one screen per input and any number of viewers."""

    def __init__(
        self,
        listener: Listener,
        names: Sequence[str],
        classes: Sequence[str],
        palette: NDArray[np.uint8],
        look: Look,
        backend: str = "",
        clock: Clock = time.perf_counter,
    ) -> None:
        shown = [class_index(name, classes) for name in look.only] or list(range(len(classes)))
        self._greeting = {
            "inputs": list(names),
            "classes": list(classes),
            "palette": palette[: len(classes)].tolist(),
            "alpha": look.alpha,
            "shown": shown,
            "backend": backend,
        }
        self._page = _page()
        self._listener = listener
        self._encoder = ThreadPoolExecutor(1, "mrcfa-view-encoder", _step_back)
        self.screens = [Screen(name, self._encoder, self._wake, clock) for name in names]
        self.viewers: set[Viewer] = set()
        self._status = Status()
        self._waking = False
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="mrcfa-view", daemon=True)

    @property
    def url(self) -> str:
        return self._listener.url

    def __enter__(self) -> "View":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell the viewers that the run has ended, and stop the server."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._encoder.shutdown()

    def _wake(self) -> None:
        """Wake the viewers from any thread; cheap without viewers."""
        if self.viewers and not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake_viewers)

    def _wake_viewers(self) -> None:
        self._waking = False
        for viewer in self.viewers:
            viewer.woken.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _, facts: _LOG.debug("%s", facts))
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(middlewares=[guard(self._listener.token)])
        app.on_response_prepare.append(add_headers)
        app.router.add_get("/", self._send_page)
        app.router.add_get("/stream", self._attend)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_LOG,
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=_GRACE_S,
        )
        await runner.setup()
        assert runner.server is not None
        tasks = [self._loop.create_task(self._tick())]
        tasks += [self._loop.create_task(self._accept(runner.server))]
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        self._sample(ended=True)
        await runner.cleanup()

    async def _accept(self, server: web.Server) -> None:
        """Accept connections up to a limit, which asyncio's own server does not have."""
        self._listener.socket.setblocking(False)
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener.socket)
                if len(server.connections) < MOST_CONNECTIONS:
                    await self._loop.connect_accepted_socket(server, connection)
                else:
                    connection.close()
            except OSError:  # the client has left, or no file descriptor is free
                await asyncio.sleep(_PAUSE_S)

    async def _send_page(self, _: web.Request) -> web.Response:
        page, policy = self._page
        headers = {"Content-Security-Policy": policy}
        return web.Response(text=page, content_type="text/html", headers=headers)

    async def _attend(self, request: web.Request) -> web.StreamResponse:
        if len(self.viewers) >= MOST_VIEWERS:
            raise web.HTTPServiceUnavailable(text=f"mrcfa: {MOST_VIEWERS} pages are open already\n")
        socket = web.WebSocketResponse(heartbeat=_IDLE_S, compress=False, max_msg_size=64)
        await socket.prepare(request)
        viewer = Viewer(socket, self.screens, self._status)
        self.viewers.add(viewer)
        try:
            minutes = [list(screen.minute) for screen in self.screens]
            await viewer.attend(json.dumps(self._greeting | {"minutes": minutes}))
        finally:
            self.viewers.discard(viewer)
        return socket

    async def _tick(self) -> None:
        while True:
            self._sample()
            await asyncio.sleep(1)

    def _sample(self, ended: bool = False) -> None:
        for screen in self.screens:
            screen.sample()
        self._status.ended = ended
        if self.viewers:
            heat = temperature()
            self._status.publish(
                inputs=[screen.facts() for screen in self.screens],
                temperature=heat and asdict(heat),
                viewers=len(self.viewers),
                ended=ended,
            )
            self._wake_viewers()


def _step_back() -> None:
    """Lower this thread's priority, so that the pipeline comes first; only Linux can do it."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _page() -> tuple[str, str]:
    """The page with inline style and script, and the security policy that allows only these."""
    folder = resources.files("mrcfa.video.view")
    style, overlay, script, page = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("page.css", "overlay.js", "page.js", "page.html")
    )
    script = overlay + script
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page.replace("{{style}}", style).replace("{{script}}", script), policy


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
