"""A static host of a site, and the frames and masks that the site's page shows."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

COLLECT = """
window.collected = [];
document.addEventListener("segmented", ({detail: {number, picture, mask, width, height}}) => {
  const pen = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  pen.drawImage(picture, 0, 0, width, height);
  const {data} = pen.getImageData(0, 0, width, height);
  collected.push([number, new Uint8Array(data.buffer).toBase64(), mask.toBase64()]);
});
0
"""


class Host:
    """Answer as `python -m http.server` does, without the files in `lost`."""

    def __init__(self, server: ThreadingHTTPServer, lost: set[str]) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}/"
        self.lost = lost


@contextmanager
def hosted(folder: Path) -> Iterator[Host]:
    lost = set[str]()

    class Handler(SimpleHTTPRequestHandler):
        def send_head(self) -> Any:
            if self.path.lstrip("/") in lost:
                return self.send_error(404)
            return super().send_head()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Host(server, lost)
        server.shutdown()
        thread.join()


def collected(tab: Any, size: tuple[int, int]) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Number since the video's start, RGB and mask of each frame that the page has shown."""

    def array(text: str, channels: int) -> np.ndarray:
        return np.frombuffer(base64.b64decode(text), np.uint8).reshape(*size, channels)

    return [
        (number, array(image, 4)[..., :3].copy(), array(mask, 1)[..., 0])
        for number, image, mask in tab.value("collected")
    ]
