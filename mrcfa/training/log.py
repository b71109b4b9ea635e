"""What a run writes down as it goes: a JSON line per step and validation, and TensorBoard's events.

`log.jsonl` is always there. TensorBoard's event files lie beside it if `tensorboard` is installed.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mrcfa.machine.files import write_errors_reported

LOG = "log.jsonl"


class Log:
    """What a resumed run does again is cut off first."""

    def __init__(self, run: Path, iteration: int) -> None:
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
    """The lines of a run's log; one that was cut off is left out."""
    for line in (run / LOG).read_text(encoding="utf-8").splitlines():
        if math.isfinite(_iteration_of(line)):
            yield json.loads(line)


def _board(run: Path, iteration: int) -> Any:
    """TensorBoard's writer, or None without the package; events of later steps are superseded."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run), purge_step=iteration + 1)


def _iteration_of(line: str) -> float:
    """Infinity for a line that was cut off."""
    try:
        return float(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf
