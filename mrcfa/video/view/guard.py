"""Who may see the view: those with the token, or on loopback pages of this machine alone.

A browser carries any website's requests to this machine. So the name that it was asked for must be
this machine's own (or else a domain that was pointed here could read the page), and a WebSocket
must come from our page (browsers let any page open one).
"""

import secrets
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "mrcfa",
}


def guard(token: str | None) -> Middleware:
    """Refuses with 403 whoever may not see the view, whatever it asked for."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refusal(request, token)
        if refusal:
            raise web.HTTPForbidden(text=f"mrcfa: {refusal}\n")
        return await handler(request)

    return guarded


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """To every answer, errors too."""
    response.headers.update(HEADERS)


def _refusal(request: web.Request, token: str | None) -> str | None:
    if token is None:
        if not _is_this_machine(request.headers.get(hdrs.HOST, "")):
            return "this view is for this machine alone; open it as localhost"
    elif not secrets.compare_digest(request.query.get("token", "").encode(), token.encode()):
        return "wrong token; open the address that mrcfa run printed"
    origin = request.headers.get(hdrs.ORIGIN)  # absent where no browser asks
    if origin is not None and not _same_origin(origin, request.headers.get(hdrs.HOST, "")):
        return "another site may not look at this view"
    return None


def _is_this_machine(host: str) -> bool:
    """Whatever its port: an SSH tunnel has another one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _same_origin(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()
