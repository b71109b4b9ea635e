"""Python processes that import nothing from the current folder.

Python puts that folder in front of everything else for `-m` and `-c`, and before 3.11 no variable
stops it. A folder that came from elsewhere, such as a bundle, must not run code that way.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOT_HERE = "import sys; sys.path[:] = filter(None, sys.path)"
"""`sys` is built in, so no file can stand in for it."""


def python_command(kind: str, what: str, *words: str) -> list[str]:
    """The command for `python -m MODULE …` or `python -c CODE …` without the current folder."""
    run = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"{_NOT_HERE}\n{what if kind == '-c' else run}", *words]


@contextmanager
def away_from_here() -> Iterator[None]:
    """A safe current folder, for `multiprocessing`, which starts its children where it is."""
    here = Path.cwd()
    os.chdir(sys.prefix)
    try:
        yield
    finally:
        os.chdir(here)
