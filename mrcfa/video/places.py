"""Where masks go, if nobody says so, or if several inputs share a folder; what may be replaced."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from mrcfa.console.addresses import without_secrets
from mrcfa.errors import AlreadyExists, InvalidValue, named
from mrcfa.video.sinks import FILES, kind_of
from mrcfa.video.sources import IMAGE_SUFFIXES, globbed

NAME = "{}"
"""What stands for the input's name in a place."""


def places_for(sources: Sequence[str], out: str | None, force: bool = False) -> list[str]:
    """Where to write what comes from each source, which is never the place of another or its own.

    Without `out`, a pipe is answered with a pipe, an image with an image, and everything else with
    a video in the current folder. The outputs of several sources lie in the folder `out`, or where
    `out` with each one's name in place of `{}` says. What exists is replaced with `force` alone.
    """
    places = _named(sources, out)
    for source, place in zip(sources, places, strict=True):
        if kind_of(place) == ".png" and not _is_image(source):
            raise InvalidValue(
                f"{place} holds one picture and {source} is no image; name a folder with -o"
            )
        if place != "-":
            _check_free(place, sources, force)
    return places


def _named(sources: Sequence[str], out: str | None) -> list[str]:
    names = names_for(sources)
    if out is not None and NAME in out:
        folder = "/" if out.endswith(NAME) else ""  # whatever dots the names have
        return [out.replace(NAME, name) + folder for name in names]
    if out is not None and len(sources) == 1:
        return [out]
    if out is not None and (out == "-" or kind_of(out) in FILES):
        raise InvalidValue(
            f"{len(sources)} inputs cannot share {out}; name a folder with -o, or a place with "
            f"{NAME} for their names, such as masks/{NAME}.npz"
        )
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise InvalidValue(f"{out} is no folder; name one with -o, for {len(sources)} inputs")
    suffixes = [".png" if _is_image(source) else ".mp4" for source in sources]
    if out is None:
        return [
            "-" if sources == ["-"] else f"{name}.mrcfa{suffix}"
            for name, suffix in zip(names, suffixes, strict=True)
        ]
    return [str(Path(out) / (name + each)) for name, each in zip(names, suffixes, strict=True)]


def _check_free(place: str, sources: Sequence[str], force: bool) -> None:
    """Refuse to replace an input, what nobody said may be replaced, and what no run has written."""
    path = Path(place)
    if any(_holds(path, source) for source in sources):
        raise InvalidValue(f"{place} is the input or holds it; name another output with -o")
    folder = kind_of(place) not in FILES
    if not (path.is_dir() and any(path.iterdir()) if folder else path.is_file()):
        return
    if not force:
        raise AlreadyExists(f"{place} is already there; --force replaces it, -o names another")
    strangers = [each.name for each in path.iterdir() if each.suffix != ".png"] if folder else []
    if strangers:
        raise AlreadyExists(
            f"{place} holds {named(sorted(strangers), most=3)}, which no run has written; name "
            "another folder with -o"
        )


def names_for(sources: Sequence[str]) -> list[str]:
    """A distinct name for each source, which holds no user and no password."""
    return _distinct([_stem(source) for source in sources])


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
    return Path(source.rstrip("/")).stem.strip("*?[].") or "frames"


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


def _is_image(source: str) -> bool:
    return Path(source).suffix.lower() in IMAGE_SUFFIXES and Path(source).is_file()


def _holds(path: Path, source: str) -> bool:
    """Whether the path is the source, or a folder above a file of it."""
    if "://" in source:
        return False
    given = Path(source)
    wild = any(wildcard in source for wildcard in "*?[") and not given.exists()
    files = [file.resolve() for file in (globbed(given) if wild else [given]) if file.exists()]
    return any(path.resolve() in (file, *file.parents) for file in files)
