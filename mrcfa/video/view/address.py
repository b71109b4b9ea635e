"""The address of the live view, and the token that all addresses except loopback need."""

import secrets
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address

from mrcfa.errors import InvalidValue, NotFound

LOOPBACK = "127.0.0.1"
_BACKLOG = 64


@dataclass(frozen=True)
class Listener:
    """A listening socket; connections wait until the server accepts them."""

    socket: socket.socket
    token: str | None = field(repr=False)
    """The token that requests must have; None on loopback."""

    @property
    def url(self) -> str:
        """The address to open in a browser, with the token."""
        host, port = self.socket.getsockname()[:2]
        host = _own_address(self.socket.family) if ip_address(host).is_unspecified else host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}/" + (f"?token={self.token}" if self.token else "")

    def close(self) -> None:
        self.socket.close()


def listen(place: str) -> Listener:
    """Listen at `[HOST:]PORT`; the default host is loopback, and port 0 means any free port."""
    host, port = _parsed(place)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise NotFound(
            f"--view {place}: there is no host {host!r}; name one of this machine"
        ) from None
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # skip TIME_WAIT after a run
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise InvalidValue(
            f"--view {place}: {host} port {port} cannot be used: {error.strerror}; "
            "choose another port, or 0 for any free one"
        ) from None
    local = ip_address(opened.getsockname()[0]).is_loopback
    return Listener(opened, None if local else secrets.token_urlsafe(16))


def _parsed(place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets, whose end would be taken for the port
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16) or (colon and not host):
        raise InvalidValue(
            f"--view {place!r} is not [HOST:]PORT; write it like 8080, 0.0.0.0:8080 or [::1]:8080"
        )
    return host or LOOPBACK, int(port)


def _own_address(family: int) -> str:
    """This machine's address on its route to the outside; no packet is sent to find it."""
    outside = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((outside, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
