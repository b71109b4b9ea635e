"""The log of a training run: `log.jsonl` with one line per step and per validation.

If `tensorboard` is installed, its event files are written beside it.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mrcfa.machine.files import write_errors_reported

LOG = "log.jsonl"


class Log:
    """A writer of the log of one run."""

    def __init__(self, run: Path, iteration: int) -> None:
        """Open the log; entries after `iteration` are removed, because they will be repeated."""
        path = run / LOG
        kept = []
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _iteration_of(line) <= iteration]
        self._file = path.open("w", encoding="utf-8")
        self._file.writelines(f"{line}\n" for line in kept)
        self._file.flush()
        self._board = _board(run, iteration)

    def write(self, iteration: int, **values: Any) -> None:
        """Append an entry; values that are not finite become null."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        with write_errors_reported(self._file.name):
            self._file.write(json.dumps({"iteration": iteration, **finite}) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, value in finite.items():
                if isinstance(value, float):
                    self._board.add_scalar(name, value, iteration)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def entries_of(run: Path) -> Iterator[dict[str, Any]]:
    """The entries of a run's log, except incomplete lines."""
    for line in (run / LOG).read_text(encoding="utf-8").splitlines():
        if math.isfinite(_iteration_of(line)):
            yield json.loads(line)


def _board(run: Path, iteration: int) -> Any:
    """TensorBoard's writer, which hides events of later steps; None without the package."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run), purge_step=iteration + 1)


def _iteration_of(line: str) -> float:
    """The iteration of a log line; infinity for an incomplete line."""
    try:
        return float(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf
