"""Chromium without a window, driven by its DevTools protocol."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 60
NO_GPU = ("--disable-gpu",)
SOFTWARE_GPU = (
    *("--enable-unsafe-webgpu", "--enable-unsafe-swiftshader"),
    "--use-webgpu-adapter=swiftshader",
)
"""WebGPU without a GPU, on the software Vulkan that comes with Chromium."""
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-sync", "--disable-component-update"),
    *("--disable-background-networking", "--disable-features=OptimizationHints,Translate"),
)


class Browser:
    def __init__(self, profile: Path, *flags: str, gpu: tuple[str, ...] = NO_GPU) -> None:
        assert CHROMIUM is not None
        command = [CHROMIUM, *FLAGS, *gpu, *flags, "--remote-debugging-port=0"]
        command += [f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        address = profile / "DevToolsActivePort"
        self._loop = asyncio.new_event_loop()
        try:
            until(lambda: address.exists() and address.read_text().count("\n"))
        except AssertionError:
            self._process.kill()
            raise
        self._port, path = address.read_text().split()[:2]
        self._session = self.wait(_new_session())
        self._root = Tab(self, path)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> "Tab":
        target = self._root("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, f"/devtools/page/{target}")
        phone = width < 500
        tab(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab("Emulation.setEmulatedMedia", features=[scheme])
        tab("Page.navigate", url=url)
        return tab

    def crash_gpu(self) -> None:
        """End the process that all tabs share for their GPU; the browser starts another one."""
        self._root("Browser.crashGpuProcess")

    def close(self) -> None:
        self.wait(self._session.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    def connect(self, path: str) -> Any:
        address = f"ws://127.0.0.1:{self._port}{path}"
        return self.wait(_connected(self._session, address))


class Tab:
    """`tab("Page.navigate", url=…)` is any command; the rest are those that tests use most."""

    def __init__(self, browser: Browser, path: str) -> None:
        self._browser, self._calls = browser, 0
        self._socket = browser.connect(path)

    def __call__(self, method: str, **given: Any) -> dict[str, Any]:
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": given}
        return self._browser.wait(_answered(self._socket, call))

    def value(self, script: str) -> Any:
        answer = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str, patience_s: float = PATIENCE_S) -> Any:
        """Run the script until its value is true, and return that value."""
        return until(lambda: self.value(script), patience_s)

    def screenshot(self, path: Path) -> None:
        answer = self("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        self("Page.close")
        self._browser.wait(self._socket.close())


def until(condition: Any, patience_s: float = PATIENCE_S) -> Any:
    """Ask for the condition until it is true, and return its value."""
    deadline = time.monotonic() + patience_s
    while not (said := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return said


async def _new_session() -> ClientSession:
    return ClientSession()


async def _connected(session: ClientSession, address: str) -> Any:
    return await session.ws_connect(address, max_msg_size=0)


async def _answered(socket: Any, call: dict[str, Any]) -> dict[str, Any]:
    await socket.send_str(json.dumps(call))
    while True:
        said = json.loads(await socket.receive_str())
        if said.get("id") == call["id"]:
            assert "error" not in said, said
            return said["result"]
