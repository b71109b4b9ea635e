"""A camera on the network: MJPEG over HTTP, whose stream has no length."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image


@contextmanager
def network_camera(pictures: int) -> Iterator[str]:
    """The URL of a camera that shows so many black pictures of 96×160, and ends."""
    jpeg = io.BytesIO()
    Image.new("RGB", (160, 96)).save(jpeg, "JPEG")
    data = jpeg.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace;boundary=next")
            self.end_headers()
            head = f"--next\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
            with suppress(ConnectionError):  # nobody looks any more
                for _ in range(pictures):
                    self.wfile.write(head.encode() + data + b"\r\n")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/camera"
        server.shutdown()
