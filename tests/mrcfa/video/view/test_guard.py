"""Access to the live page: strangers get a status code, and the pipeline goes on."""

import asyncio
import random
import socket
import threading

import pytest
from aiohttp import ClientSession
from browser import until
from viewing import PATIENCE_S, show, viewing, visit

OUTSIDE = "0.0.0.0:0"


def asked(view, path="/", query="", method="GET", **headers):
    """Status, headers and text of an answer, on loopback whatever the view listens on."""
    port = view._listener.socket.getsockname()[1]

    async def ask():
        async with (
            ClientSession() as session,
            session.request(
                method, f"http://127.0.0.1:{port}{path}{query}", headers=headers
            ) as answer,
        ):
            return answer.status, answer.headers, await answer.text()

    return asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.mark.parametrize("path", ["/", "/stream", "/nothing", "/../../etc/passwd"])
@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=%ff", "?token=ä"])
def test_without_the_token_nothing_is_told(path, query):
    with viewing(place=OUTSIDE) as view:
        status, _, text = asked(view, path, query)
        assert status == 403
        assert "wrong token" in text
        assert "<html" not in text


def test_the_token_opens_the_page_and_the_stream():
    with viewing(place=OUTSIDE) as view:
        show(view)
        token = view._listener.token
        assert asked(view, "/", f"?token={token}", Host="robot.local")[0] == 200
        assert asked(view, "/", f"?token={token[:-1]}")[0] == 403

        async def look(page):
            return (await page.frame())[0]["number"]

        assert visit(view, look) == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9000", 200),  # through an SSH tunnel
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),  # a name that somebody points to this machine
        ("localhost.evil.example", 403),
        ("192.0.2.7:8080", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
def test_on_loopback_only_the_names_of_this_machine_are_answered(host, status):
    with viewing() as view:
        assert asked(view, Host=host)[0] == status
        if status == 403:
            assert asked(view, "/stream", **UPGRADE, Host=host)[0] == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "", "file://", "http://"]
)
def test_pages_of_other_sites_are_refused(origin):
    with viewing() as view:
        for path in ("/", "/stream"):
            answer = asked(view, path, **UPGRADE, Origin=origin, Host="localhost:9000")
            assert answer[0] == 403
        assert not view.viewers


def test_our_own_page_may_open_the_stream_through_a_tunnel():
    with viewing() as view:
        headers = {**UPGRADE, "Origin": "http://localhost:9000", "Host": "localhost:9000"}
        port = view._listener.socket.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            line.sendall(f"GET /stream HTTP/1.1\r\n{head}\r\n".encode())
            assert line.recv(99).startswith(b"HTTP/1.1 101 ")


def test_answers_forbid_what_the_page_does_not_need():
    with viewing() as view:
        for path, status in (("/", 200), ("/nothing", 404)):
            found, headers, _ = asked(view, path)
            assert found == status
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert not [name for name in headers if name.startswith("Access-Control")]
        policy, page = asked(view)[1]["Content-Security-Policy"], asked(view)[2]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in page


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/", 405), ("DELETE", "/stream", 405), ("GET", "/stream", 400), ("GET", "/a", 404)],
)
def test_what_is_not_there_has_a_status_code(method, path, status):
    with viewing() as view:
        assert asked(view, path, method=method)[0] == status


LOCAL = b" HTTP/1.1\r\nHost: localhost\r\n"
MALFORMED = {
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n": b"400",
    b"GET / HTTP/1.1\r\n\x00\xff\r\n\r\n": b"400",
    b"GET /\xff\xfe" + LOCAL + b"\r\n": b"400",
    b"GET / HTTP/1.1\r\nHost: " + b"a" * 9000 + b"\r\n\r\n": b"400",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n": b"400",
    b"POST /" + LOCAL + b"Content-Length: -1\r\n\r\n": b"400",
    b"POST /" + LOCAL + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n": b"400",
    b"GET /stream" + LOCAL + b"Upgrade: websocket\r\n\r\n": b"400",
    b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n": b"403",
    b"GET /../../etc/passwd" + LOCAL + b"\r\n": b"404",
    b"GET /$(reboot);`id`|sh" + LOCAL + b"\r\n": b"404",
    b"GET /%%%%00" + LOCAL + b"\r\n": b"404",
    b"PUT /" + LOCAL + b"\r\n": b"405",
}


@pytest.mark.thorough
def test_ten_thousand_malformed_requests_get_codes_and_hold_up_nothing(capfd):
    chance, stop = random.Random(0), threading.Event()
    with viewing() as view:
        address = view._listener.socket.getsockname()

        def pipeline():
            while not stop.wait(0.001):
                show(view)

        running = threading.Thread(target=pipeline)
        running.start()
        try:
            for number in range(10_000):
                with socket.create_connection(address, PATIENCE_S) as line:
                    if number % 2:
                        line.sendall(chance.randbytes(chance.randrange(1, 200)))
                    else:
                        request, code = chance.choice([*MALFORMED.items()])
                        line.sendall(request)
                        assert line.recv(99)[9:12] == code, request
            before = view.screens[0].shot.number
            until(lambda: view.screens[0].shot.number > before)
        finally:
            stop.set()
            running.join()
        assert asked(view)[0] == 200

        async def look(page):
            return (await page.frame())[0]["number"]

        assert visit(view, look) == view.screens[0].shot.number
    assert capfd.readouterr() == ("", "")


def test_connections_without_a_request_are_limited(monkeypatch):
    monkeypatch.setattr("mrcfa.video.view.server.MOST_CONNECTIONS", 5)
    with viewing() as view:
        address = view._listener.socket.getsockname()
        lines = [socket.create_connection(address, PATIENCE_S) for _ in range(9)]
        assert [line.recv(1) for line in lines[5:]] == [b""] * 4
        for line in lines:
            line.close()
        until(lambda: _answers(view))


def _answers(view):
    try:
        return asked(view)[0] == 200
    except OSError:
        return False
