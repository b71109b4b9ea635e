"""Output paths: defaults, one path per input, and protection of existing files."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from mrcfa.console.addresses import without_secrets
from mrcfa.errors import AlreadyExists, InvalidValue, named
from mrcfa.video.sinks import FILES, kind_of
from mrcfa.video.sources import IMAGE_SUFFIXES, globbed

NAME = "{}"
"""Placeholder for the input's name in an output path."""


def places_for(sources: Sequence[str], out: str | None, force: bool = False) -> list[str]:
    """The output path of each source; all differ from each other and from the inputs.

    Without `out`, a pipe is written to a pipe, an image to an image, and anything else to a video
    in the current folder. Several sources are written into the folder `out`, or to `out` with `{}`
    replaced by their names. Existing outputs are replaced only with `force`.
    """
    places = _named(sources, out)
    for source, place in zip(sources, places, strict=True):
        if kind_of(place) == ".png" and not _is_image(source):
            raise InvalidValue(
                f"{place} holds one picture, but {source} is not an image; name a folder with -o"
            )
        if place != "-":
            _check_free(place, sources, force)
    return places


def _named(sources: Sequence[str], out: str | None) -> list[str]:
    names = names_for(sources)
    if out is not None and NAME in out:
        folder = "/" if out.endswith(NAME) else ""  # a name may contain dots
        return [out.replace(NAME, name) + folder for name in names]
    if out is not None and len(sources) == 1:
        return [out]
    if out is not None and (out == "-" or kind_of(out) in FILES):
        raise InvalidValue(
            f"{len(sources)} inputs cannot share {out}; name a folder with -o, or a path with "
            f"{NAME} for their names, such as masks/{NAME}.npz"
        )
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise InvalidValue(f"{out} is not a folder; name one with -o for {len(sources)} inputs")
    suffixes = [".png" if _is_image(source) else ".mp4" for source in sources]
    if out is None:
        return [
            "-" if sources == ["-"] else f"{name}.mrcfa{suffix}"
            for name, suffix in zip(names, suffixes, strict=True)
        ]
    return [str(Path(out) / (name + suffix)) for name, suffix in zip(names, suffixes, strict=True)]


def _check_free(place: str, sources: Sequence[str], force: bool) -> None:
    """Refuse an output that would replace an input, a file without `force`, or foreign files."""
    path = Path(place)
    if any(_holds(path, source) for source in sources):
        raise InvalidValue(f"{place} is the input or contains it; name another output with -o")
    folder = kind_of(place) not in FILES
    if not (path.is_dir() and any(path.iterdir()) if folder else path.is_file()):
        return
    if not force:
        raise AlreadyExists(
            f"{place} already exists; replace it with --force, or name another with -o"
        )
    foreign = [file.name for file in path.iterdir() if file.suffix != ".png"] if folder else []
    if foreign:
        raise AlreadyExists(
            f"{place} holds {named(sorted(foreign), most=3)}, which mrcfa did not write; name "
            "another folder with -o"
        )


def names_for(sources: Sequence[str]) -> list[str]:
    """A distinct name for each source, without users and passwords."""
    return _distinct([_stem(source) for source in sources])


def _stem(source: str) -> str:
    """The base of a source's name; for an address, its host and path without user and password."""
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
    """The same names, with numbers added to repeated ones, ignoring case as some systems do."""
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
    """True if the path is the source, or a folder that contains a file of the source."""
    if "://" in source:
        return False
    given = Path(source)
    wild = any(wildcard in source for wildcard in "*?[") and not given.exists()
    files = [file.resolve() for file in (globbed(given) if wild else [given]) if file.exists()]
    return any(path.resolve() in (file, *file.parents) for file in files)
