"""`Address`: the server and model that `triton://HOST:PORT/MODEL` names."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from mrcfa.errors import InvalidValue, named

EXAMPLE = "triton://127.0.0.1:8001/mrcfa"
PATIENCE_S = 60.0
"""Longer than a restart: a stopping server keeps its port for up to 30 s, then models load."""
_SCHEME = re.compile(r"(tritons?):/*(?=[^/])")
_QUERY = ("patience", "shared_memory", "authority")


@dataclass(frozen=True)
class Address:
    """A model on a server: `triton` is plain text, `tritons` is TLS."""

    host: str
    port: int
    model: str
    tls: bool = False
    patience_s: float = PATIENCE_S
    """The longest time a frame waits for the server, including the server's restart."""
    shared_memory: bool = True
    """True if frames pass through shared memory when server and client are on one host."""
    authority: str | None = None
    """The server's name behind a proxy: gRPC's :authority."""

    @classmethod
    def parse(cls, place: str | Path) -> "Address":
        """Read an address. A `Path` turns two slashes into one, so one is enough."""
        text = _SCHEME.sub(r"\1://", str(place), count=1)
        try:
            parts = urlsplit(text)
            port = parts.port or 8001
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            patience = float(query.get("patience", PATIENCE_S))
        except ValueError as error:
            raise InvalidValue(
                f"{place} is no address ({error}); write it like {EXAMPLE}"
            ) from None
        model = parts.path.strip("/")
        if not _SCHEME.match(text) or not parts.hostname or not model or "/" in model:
            raise InvalidValue(f"{place} is no address of a served model; write it like {EXAMPLE}")
        unknown = sorted(query.keys() - set(_QUERY))
        if unknown:
            raise InvalidValue(f"{place} has {named(unknown)}; choose from {named(_QUERY)}")
        wanted = query.get("shared_memory", "yes")
        if wanted not in ("yes", "no"):
            raise InvalidValue(f"{place} has shared_memory={wanted}; choose yes or no")
        return cls(
            host=parts.hostname,
            port=port,
            model=model,
            tls=parts.scheme == "tritons",
            patience_s=patience,
            shared_memory=wanted == "yes",
            authority=query.get("authority"),
        )

    @property
    def place(self) -> str:
        """HOST:PORT, as gRPC takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def here(self) -> bool:
        """True if the address names this host, so that memory can be shared."""
        return self.host in ("127.0.0.1", "localhost", "::1")

    def __str__(self) -> str:
        return f"{'tritons' if self.tls else 'triton'}://{self.place}/{self.model}"


@dataclass(frozen=True)
class Credentials:
    """The environment's files for TLS and its `authorization` header."""

    root_certificates: str | None
    private_key: str | None
    certificate_chain: str | None
    authorization: str | None

    @classmethod
    def of_environment(cls) -> "Credentials":
        return cls(
            **{name: os.environ.get(f"MRCFA_TRITON_{name.upper()}") for name in cls.__annotations__}
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": self.authorization} if self.authorization else {}
