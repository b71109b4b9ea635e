"""The git commit of the code that runs."""

import filecmp
import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mrcfa

_PACKAGE = Path(mrcfa.__file__).parent


def commit() -> str | None:
    """The commit's hash, followed by ` with changes` if files differ from it; None if unknown.

    It is known for a clone, an installation from git, and an installation from a clone whose files
    are still the same.
    """
    origin = _origin()
    if "vcs_info" in origin:
        found: str | None = origin["vcs_info"].get("commit_id")
        return found
    source = Path(unquote(urlsplit(origin.get("url", "")).path))
    for clone in (_PACKAGE.parent, source):
        if (clone / ".git").exists() and _same_code(clone / "mrcfa"):
            return _head(clone)
    return None


def _origin() -> dict[str, Any]:
    """The record that pip keeps of an installation from git or from a folder (PEP 610)."""
    try:
        text = metadata.distribution("mrcfa").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return json.loads(text) if text else {}


def _same_code(package: Path) -> bool:
    return package == _PACKAGE or all(
        (package / file.relative_to(_PACKAGE)).is_file()
        and filecmp.cmp(file, package / file.relative_to(_PACKAGE), shallow=False)
        for file in _PACKAGE.rglob("*.py")
    )


def _head(clone: Path) -> str | None:
    try:
        head = _git(clone, "rev-parse", "HEAD")
        changed = _git(clone, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head} with changes" if changed else head


def _git(clone: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(clone), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
