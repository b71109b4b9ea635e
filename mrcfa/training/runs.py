"""Where a run keeps what; light, so that commands may ask before torch is loaded."""

from pathlib import Path

LAST, BEST = "last.safetensors", "best.safetensors"


def is_run(path: Path) -> bool:
    """Whether this is a run's directory or a checkpoint by its name."""
    return path.suffix == ".safetensors" or (path / BEST).is_file()


def checkpoint_of(path: Path) -> Path:
    """The best one of a run."""
    return path / BEST if path.is_dir() else path
