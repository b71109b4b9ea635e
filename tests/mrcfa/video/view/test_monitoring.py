"""A network camera that dies while somebody looks, and comes back."""

import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from browser import PATIENCE_S, until
from naming import names
from PIL import Image
from viewing import viewing

from mrcfa.video import reconnection
from mrcfa.video.rounds import Sequential
from mrcfa.video.segment import Input, segment
from mrcfa.video.sources import Span, open_source
from mrcfa.video.view.monitoring import monitored


class Threshold:
    def __call__(self, frame):
        return (frame[..., 0] > 100).astype(np.uint8)

    def reset(self):
        pass


@pytest.fixture
def camera():
    """Gives a frame for each release of `given`; while `dead` is set, connections fail."""
    jpeg = io.BytesIO()
    Image.new("RGB", (160, 96)).save(jpeg, "JPEG")
    data = jpeg.getvalue()
    head = f"--next\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if server.dead.is_set():
                server.refused.set()
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace;boundary=next")
            self.end_headers()
            while server.given.acquire() and not server.dead.is_set():
                self.wfile.write(head.encode() + data + b"\r\n")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        server.dead, server.refused = threading.Event(), threading.Event()
        server.given = threading.Semaphore(8)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.dead.set()
        server.given.release(99)
        server.shutdown()


def test_a_dead_camera_is_reported_and_shown_again_when_it_is_back(camera, monkeypatch, capsys):
    monkeypatch.setattr(reconnection, "RETRY_S", 0.01)
    place = f"http://user:secret@127.0.0.1:{camera.server_port}/front"
    opened = [open_source(place)]
    assert opened[0].live
    with viewing("front") as view, monitored([place], opened, Span(), view.screens) as sources:
        (screen,) = view.screens
        one = Input(sources[0], lambda image, mask: mask, lambda *_: None, True, watch=screen.show)
        stages = []

        def live_the_life_of_a_camera():
            until(lambda: screen.shot)
            camera.dead.set()
            camera.given.release(1)
            assert camera.refused.wait(PATIENCE_S)
            stages.append(screen.facts())
            before = screen.shot.number
            camera.dead.clear()
            camera.given.release(8)
            until(lambda: screen.shot.number > before and screen.facts()["state"] == "live")
            stages.append(screen.facts())
            sources[0].stop()
            camera.dead.set()
            camera.given.release(1)

        life = threading.Thread(target=live_the_life_of_a_camera)
        life.start()
        done = segment([one], Sequential([Threshold()]))
        life.join()
    lost, back = stages
    assert lost["state"] == "lost"
    assert names(lost["message"], "front")
    assert back["message"] == ""
    assert done.tallies[0].complaint is None
    warnings = capsys.readouterr().err
    *_, last_lost, last_back = warnings.splitlines()
    assert names(last_lost, "front")
    assert names(last_back, "front")
    assert "secret" not in warnings + repr(stages)
