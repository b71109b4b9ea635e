"""Archives that are given in place of a bundle's folder. C++: engines/cpp/src/bundle.cpp."""

from pathlib import Path

_SIGNATURES = (
    (0, b"PK\x03\x04", "zip", "unzip"),
    (257, b"ustar", "tar", "tar xf"),
    (0, b"\x1f\x8b", "gzip", "tar xf"),
    (0, b"BZh", "bzip2", "tar xf"),
    (0, b"\xfd7zXZ\0", "xz", "tar xf"),
    (0, b"\x28\xb5\x2f\xfd", "zstd", "tar xf"),
)
"""Offset and bytes of a signature, the kind of archive, and the command that unpacks it."""


def archive_refusal(path: Path) -> str | None:
    """A sentence with the command that unpacks the archive at `path`; None if there is none."""
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError:  # no file, a folder, or no permission
        return None
    for offset, signature, kind, command in _SIGNATURES:
        if start.startswith(signature, offset):
            return (
                f"{path} is a {kind} archive, and a bundle is a folder; unpack it with: "
                f"{command} {path}"
            )
    return None
