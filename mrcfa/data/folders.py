"""Reading of VSPW's folders: `<split>.txt`, `data/<video>/origin/*.jpg` and `mask/*.png`."""

from pathlib import Path

from mrcfa.data.dataset import Clip
from mrcfa.errors import Damaged, NotFound, named
from mrcfa.machine.files import natural_order

IMAGES = (".jpg", ".png")


def clips_in_folders(root: Path, split: str, sparse: bool = False) -> tuple[Clip, ...]:
    """The videos that `<split>.txt` lists; with `sparse`, frames may lack a mask."""
    index = root / f"{split}.txt"
    if not index.is_file():
        found = [path.stem for path in sorted(root.glob("*.txt"))]
        raise NotFound(f"{root} has no {index.name}; its splits are {named(found) or 'none'}")
    try:
        names = [line.strip() for line in index.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise Damaged(
            f"{index} is not text: {error}; write the name of one video per line"
        ) from None
    return tuple(_clip(root / "data" / name, index, sparse) for name in names if name)


def _clip(folder: Path, index: Path, sparse: bool) -> Clip:
    frames, truths = _files(folder / "origin"), _files(folder / "mask")
    images = tuple(path for path in frames if path.suffix in IMAGES)
    masks = {path.stem: path for path in truths if path.suffix == ".png"}
    missing = [path for path in images if path.stem not in masks]
    problem = ""
    if not images:
        problem = "there are no images"
    elif len(missing) == len(images):
        problem = "it has no masks"
    elif missing and not sparse:
        problem = f"{named(missing, most=3)} has no mask"
    if problem:
        raise NotFound(f"video {folder.name} of {index} is incomplete: {problem}")
    annotated = {path: masks[path.stem] for path in images if path.stem in masks}
    used = {*images, *annotated.values()}
    unmatched = tuple(path for path in (*frames, *truths) if path not in used)
    return Clip(folder.name, images, annotated, unmatched)


def _files(folder: Path) -> list[Path]:
    """The folder's files in natural order, without hidden files, which some archives contain."""
    files = (file for file in folder.glob("*") if not file.name.startswith("."))
    return sorted(files, key=natural_order)
