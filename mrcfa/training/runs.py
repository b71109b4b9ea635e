"""Names of the files in a run's folder; light, so that commands can use it without torch."""

from pathlib import Path

LAST, BEST = "last.safetensors", "best.safetensors"


def is_run(path: Path) -> bool:
    """True for the folder of a run, or a path that ends in `.safetensors`."""
    return path.suffix == ".safetensors" or (path / BEST).is_file()


def checkpoint_of(path: Path) -> Path:
    """The best checkpoint of a run's folder, or the path of a checkpoint itself."""
    return path / BEST if path.is_dir() else path
