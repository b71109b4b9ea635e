"""Python processes that import what this one imports, and nothing from the current folder.

Python puts the current folder in front of everything else for `-m` and `-c`, and before 3.11 no
variable stops it. A folder that came from elsewhere, such as a bundle, must not run code that way.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def child_options(**environment: str) -> dict[str, Any]:
    """Arguments of `subprocess.run`. The child has another current folder: give absolute paths."""
    entries = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    found = os.pathsep.join(str(Path(entry).absolute()) for entry in entries if entry)
    return {"cwd": sys.prefix, "env": {**os.environ, "PYTHONPATH": found, **environment}}


@contextmanager
def away_from_here() -> Iterator[None]:
    """A safe current folder, for `multiprocessing`, which starts its children where it is."""
    here = Path.cwd()
    os.chdir(sys.prefix)
    try:
        yield
    finally:
        os.chdir(here)
