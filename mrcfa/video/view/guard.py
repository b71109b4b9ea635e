"""Access control of the live view: a token (except on loopback) and checks of request headers.

Any website can make a browser send requests to this machine. So on loopback the Host header must
name this machine (otherwise a foreign domain that resolves to it could read the page), and the
Origin of a WebSocket must be our page (browsers let any page open one).
"""

import secrets
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address contains the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "mrcfa",
}


def guard(token: str | None) -> Middleware:
    """A middleware that answers requests without access with 403."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refusal(request, token)
        if refusal:
            raise web.HTTPForbidden(text=f"mrcfa: {refusal}\n")
        return await handler(request)

    return guarded


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add `HEADERS` to every response, including errors."""
    response.headers.update(HEADERS)


def _refusal(request: web.Request, token: str | None) -> str | None:
    if token is None:
        if not _is_this_machine(request.headers.get(hdrs.HOST, "")):
            return "this view is only for this machine; open it as localhost"
    elif not secrets.compare_digest(request.query.get("token", "").encode(), token.encode()):
        return "wrong token; open the address that mrcfa run printed"
    origin = request.headers.get(hdrs.ORIGIN)  # only browsers send it
    if origin is not None and not _same_origin(origin, request.headers.get(hdrs.HOST, "")):
        return "other sites have no access to this view"
    return None


def _is_this_machine(host: str) -> bool:
    """True if a Host header names loopback, with any port, because SSH tunnels change it."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _same_origin(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()
