"""Child processes of Python that import nothing from the current folder.

For `-m` and `-c` Python searches that folder first, and before 3.11 no variable prevents it. An
untrusted folder, such as a downloaded bundle, must not run code in this way.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SAFE_PATH = "import sys; sys.path[:] = filter(None, sys.path)"
"""Code that removes the current folder from the path; `sys` is built in, so no file shadows it."""


def python_command(kind: str, target: str, *arguments: str) -> list[str]:
    """The command for `python -m MODULE …` or `python -c CODE …` without the current folder."""
    run = f"import runpy; runpy.run_module({target!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"{_SAFE_PATH}\n{target if kind == '-c' else run}", *arguments]


@contextmanager
def in_safe_folder() -> Iterator[None]:
    """Change to a trusted folder, because `multiprocessing` starts children in the current one."""
    here = Path.cwd()
    os.chdir(sys.prefix)
    try:
        yield
    finally:
        os.chdir(here)
