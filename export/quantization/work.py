"""Intermediate results of a quantization, kept in the user's cache until it is done."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mrcfa.export.quantization.calibration import Histogram, from_bytes, to_bytes
from mrcfa.machine.files import scratch_folder
from mrcfa.machine.result_cache import ResultCache

HISTOGRAMS = "histograms"


class Work:
    """Results that an interruption leaves and a success removes, and a folder for candidates."""

    def __init__(self, kept: ResultCache, folder: Path) -> None:
        self._kept, self.folder = kept, folder

    @classmethod
    @contextmanager
    def on(cls, identity: str) -> Iterator["Work"]:
        """This very work, with what an interruption left of it."""
        kept = ResultCache("quantize", identity)
        with scratch_folder() as folder:
            yield cls(kept, folder)
        kept.clear()

    def histograms(self) -> tuple[dict[str, Histogram], int]:
        """The kept histograms and the number of streams in them."""
        known = self._kept.load(HISTOGRAMS)
        return from_bytes(known) if known is not None else ({}, 0)

    def keep_histograms(self, histograms: dict[str, Histogram], streams: int) -> None:
        self._kept.save(HISTOGRAMS, to_bytes(histograms, streams))

    def facts(self, name: str) -> dict[str, Any]:
        known = self._kept.load(name)
        return dict(json.loads(known)) if known is not None else {}

    def keep_facts(self, name: str, facts: dict[str, Any]) -> None:
        self._kept.save(name, json.dumps(facts).encode())
