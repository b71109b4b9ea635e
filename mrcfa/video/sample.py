"""The sample dataset: street scenes with masks and a video, without a download.

Training, validation and test use different seeds, so that they share no scene.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from fractions import Fraction
from multiprocessing import get_context, parent_process
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from mrcfa.data.own import LABELS
from mrcfa.data.world.labels import WORLD
from mrcfa.data.world.scene import scene
from mrcfa.errors import RuntimeFailed
from mrcfa.machine.children import in_safe_folder
from mrcfa.machine.extras import load
from mrcfa.machine.files import replaced
from mrcfa.machine.hardware import usable_cores
from mrcfa.machine.interrupts import ENDING
from mrcfa.video.sinks import open_sink

RATE = Fraction(15)
"""Frames per second, as in VSPW."""
FIRST_SEED = {"train": 1_000_000, "val": 2_000_000, "test": 3_000_000}
FEW = 6
"""Largest number of videos drawn without worker processes, whose start would take longer."""


def write_sample(
    folder: Path,
    videos: dict[str, int],
    frames: int = 24,
    size: tuple[int, int] = (480, 864),
    seed: int = 0,
) -> None:
    """Write a dataset with VSPW's folders and a `labels.json`, and `street.mp4`, a test video."""
    load("PIL.Image")
    with replaced(folder, folder=True) as part:
        jobs, data = [], part.absolute() / "data"
        for split, count in videos.items():
            names = [f"{split}_{number}" for number in range(count)]
            (part / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
            first = FIRST_SEED[split] + seed
            jobs += [(data / name, frames, size, first + n) for n, name in enumerate(names)]
        with _workers(len(jobs)) as run:
            list(run(_write_video, jobs))
        content = {"names": WORLD.names, "colours": WORLD.colours}
        (part / LABELS).write_text(json.dumps(content, indent=1))
        write_street(part / "street.mp4", frames, size, seed)


def write_street(path: Path, frames: int, size: tuple[int, int], seed: int = 0) -> None:
    """Write a video of a street that no training or validation split has."""
    with open_sink(str(path), (), np.zeros((0, 3), np.uint8), RATE) as write:
        for t, (image, _) in enumerate(scene(frames, size, FIRST_SEED["test"] + seed)):
            write(f"{t:06d}", image)


def _write_video(job: tuple[Path, int, tuple[int, int], int]) -> None:
    folder, frames, size, seed = job
    pillow = load("PIL.Image")
    for kind in ("origin", "mask"):
        (folder / kind).mkdir(parents=True)
    for t, (image, mask) in enumerate(scene(frames, size, seed)):
        if _stopped():
            return
        pillow.fromarray(image).save(folder / "origin" / f"{t:08d}.jpg", quality=95)
        pillow.fromarray(mask).save(folder / "mask" / f"{t:08d}.png", compress_level=3)


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterable[None]]]:
    """A `map` over all cores, or the built-in one for few jobs; no process outlives the block."""
    if jobs <= FEW or usable_cores() == 1:
        yield map
        return
    context = get_context("spawn")
    with in_safe_folder():
        stopped = context.Event()
        pool = ProcessPoolExecutor(usable_cores(), context, _begin_worker, (stopped,))

    def run(write: Callable[[Any], None], jobs: Iterable[Any]) -> Iterable[None]:
        with in_safe_folder():
            return pool.map(write, jobs)

    with pool:
        try:
            yield run
        except BrokenProcessPool:
            raise RuntimeFailed(
                "a process that drew the sample was killed, probably because memory ran out; "
                "make fewer or smaller videos"
            ) from None
        except BaseException:
            stopped.set()
            raise


def _begin_worker(stopped: Event) -> None:
    """Set up a worker: the parent process handles signals, and the worker ends with it."""
    global _stopped
    _stopped = stopped.is_set
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _stopped() -> bool:
    """True if the parent process has asked to stop; workers replace this function."""
    return False
