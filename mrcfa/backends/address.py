"""`triton://HOST:PORT/MODEL`: where a bundle is served, as users write it."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from mrcfa.bundle import MANIFEST
from mrcfa.errors import InvalidValue, named

EXAMPLE = "triton://127.0.0.1:8001/mrcfa"
PATIENCE_S = 60.0
"""A server that stops keeps its port for up to 30 s, and another needs some to load its models."""
_SCHEME = re.compile(r"(tritons?):/*(?=[^/])")
_QUERY = ("patience", "shared_memory", "authority")


def is_address(place: str | Path) -> bool:
    """Whether a place is a server and no folder; a Path folds the slashes, which is no matter."""
    return _SCHEME.match(str(place)) is not None


def check_order(verb: str, bundle: str | Path, inputs: Sequence[str | Path]) -> None:
    """Name a bundle that stands where an input should, if what stands in its place is none."""
    swapped = next((each for each in inputs if _is_bundle(each)), None)
    if swapped is not None and not _is_bundle(bundle):
        raise InvalidValue(
            f"{swapped} is a bundle and {bundle} is none; the bundle comes first: "
            f"mrcfa {verb} {swapped} {bundle}"
        )


def _is_bundle(place: str | Path) -> bool:
    return is_address(place) or (Path(place) / MANIFEST).is_file()


@dataclass(frozen=True)
class Address:
    """`triton` is in the clear, `tritons` is TLS; secrets come from the environment."""

    host: str
    port: int
    model: str
    tls: bool = False
    patience_s: float = PATIENCE_S
    """How long a frame may wait for its server, restarts included."""
    shared_memory: bool = True
    """Whether frames go through it where server and client are on one host."""
    authority: str | None = None
    """The name that the server goes by behind a proxy: gRPC's :authority."""

    @classmethod
    def parse(cls, place: str | Path) -> "Address":
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
        if not is_address(text) or not parts.hostname or not model or "/" in model:
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
        """Whether it is this very host, whose memory could be shared."""
        return self.host in ("127.0.0.1", "localhost", "::1")

    def __str__(self) -> str:
        return f"{'tritons' if self.tls else 'triton'}://{self.place}/{self.model}"


@dataclass(frozen=True)
class Credentials:
    """Files for TLS and the `authorization` header, from the environment."""

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
