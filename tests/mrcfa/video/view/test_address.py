"""Where the view listens: on loopback without, elsewhere with a token."""

import socket
from contextlib import closing

import pytest
from naming import naming

from mrcfa.errors import InvalidValue, NotFound
from mrcfa.video.view.address import listen


@pytest.mark.parametrize(
    ("place", "host"), [("0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.1"), ("localhost:0", None)]
)
def test_loopback_needs_no_token(place, host):
    with closing(listen(place)) as listener:
        assert listener.token is None
        assert listener.socket.getsockname()[0] in ({host} if host else {"127.0.0.1", "::1"})
        assert listener.url.endswith(f":{listener.socket.getsockname()[1]}/")


def test_any_other_address_has_a_token_of_its_own_in_its_url():
    with closing(listen("0.0.0.0:0")) as one, closing(listen("0.0.0.0:0")) as other:
        assert len(one.token) >= 20
        assert one.token != other.token
        assert one.url.endswith(f"/?token={one.token}")
        assert "0.0.0.0" not in one.url
        assert one.token not in repr(one)


@pytest.mark.parametrize(
    "place",
    ["", "eighty", "65536", "-1", "80.5", ":8080", "host:", "::1:8080", "²", "[::1]", "1 2"],
)
def test_what_is_no_port_is_refused_with_an_example(place):
    with pytest.raises(InvalidValue, match=naming("--view", repr(place), "8080")):
        listen(place)


def test_a_port_in_use_is_told():
    with closing(listen("0")) as listener:
        port = listener.socket.getsockname()[1]
        with pytest.raises(InvalidValue, match=naming(f"--view {port}", "127.0.0.1", port)):
            listen(str(port))


@pytest.mark.parametrize(
    ("place", "kind", "host"),
    [
        ("nowhere.invalid:8080", NotFound, "'nowhere.invalid'"),
        ("192.0.2.1:0", InvalidValue, "192.0.2.1"),
    ],
)
def test_a_host_that_is_not_this_machine_is_told(place, kind, host, monkeypatch):
    def unknown(host, *_, **__):
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(kind, match=naming("--view", host)):
        listen(place)
