"""Where masks go, if nobody says so, or if several inputs share a folder."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from mrcfa.addresses import without_secrets
from mrcfa.errors import InvalidValue


def places_for(sources: Sequence[str], out: str | None) -> list[str]:
    """Where to write what comes from each source, which is never the place of another or its own.

    Without `out`, a pipe is answered with a pipe, and everything else with a video in the current
    folder. The outputs of several sources are videos in the folder `out`.
    """
    if len(sources) == 1:
        (source,) = sources
        if out is None:
            out = "-" if source == "-" else f"{_stem(source)}.mrcfa.mp4"
        places = [out]
    else:
        places = _shared(sources, out)
    for place in places:
        for source in sources:
            if place != "-" and _same_file(place, source):
                raise InvalidValue(f"{place} is the input; name another output with -o")
    return places


def names_for(sources: Sequence[str]) -> list[str]:
    """A distinct name for each source, which holds no user and no password."""
    return _distinct([_stem(source) for source in sources])


def _shared(sources: Sequence[str], out: str | None) -> list[str]:
    if out is not None and (out == "-" or Path(out).suffix in (".mp4", ".npz")):
        raise InvalidValue(f"{len(sources)} inputs cannot share {out}; name a folder with -o")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise InvalidValue(f"{out} is no folder; name one with -o, for {len(sources)} inputs")
    names = names_for(sources)
    if out is None:
        return [f"{name}.mrcfa.mp4" for name in names]
    return [str(Path(out) / f"{name}.mp4") for name in names]


def _stem(source: str) -> str:
    """A name for files. An address's is its host and path, without user and password."""
    if source == "-":
        return "frames"
    if source.isdecimal():
        return f"camera{source}"
    if "://" in source:
        address = urlsplit(without_secrets(source))
        path = Path(address.path)
        parts = [address.hostname or "", *path.parent.parts, path.stem]
        return "-".join(re.findall(r"[\w.]+", " ".join(parts))) or "stream"
    return Path(source.rstrip("/")).stem.strip("*?[]") or "frames"


def _distinct(names: Sequence[str]) -> list[str]:
    """The same names, numbered where they recur; some systems do not tell A from a."""
    given, taken = {name.casefold() for name in names}, set[str]()
    found = []
    for name in names:
        chosen, number = name, 1
        while chosen.casefold() in taken or (number > 1 and chosen.casefold() in given):
            number += 1
            chosen = f"{name}-{number}"
        taken.add(chosen.casefold())
        found.append(chosen)
    return found


def _same_file(place: str, source: str) -> bool:
    return Path(place).exists() and Path(source).exists() and Path(place).samefile(source)
