"""Intermediate results of a quantization, kept in the user's cache until it is done."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.quantization.calibration import Histogram, load, save
from mrcfa.files import cache_folder, write_whole

HISTOGRAMS = "histograms.npz"


@dataclass(frozen=True)
class Work:
    """A folder that outlives an interruption and not a success."""

    folder: Path

    @classmethod
    @contextmanager
    def on(cls, identity: str) -> Iterator["Work"]:
        """The folder for this very work, with what an interruption left there."""
        work = cls(cache_folder("quantize", identity))
        work.folder.mkdir(parents=True, exist_ok=True)
        yield work
        shutil.rmtree(work.folder, ignore_errors=True)

    def histograms(self) -> tuple[dict[str, Histogram], int]:
        """And how many streams they hold."""
        path = self.folder / HISTOGRAMS
        return load(path) if path.is_file() else ({}, 0)

    def keep_histograms(self, histograms: dict[str, Histogram], streams: int) -> None:
        save(histograms, streams, self.folder / HISTOGRAMS)

    def facts(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        return dict(json.loads(path.read_text())) if path.is_file() else {}

    def keep_facts(self, name: str, facts: dict[str, Any]) -> None:
        write_whole(self.folder / f"{name}.json", json.dumps(facts).encode())
