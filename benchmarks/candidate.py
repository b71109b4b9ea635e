"""What `mrcfa eval` measures: a bundle with a backend, or a run of `mrcfa train`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mrcfa.backends import open_backend
from mrcfa.backends.records import ColdStart, is_address
from mrcfa.bundle import Bundle
from mrcfa.errors import Unsupported
from mrcfa.machine.files import sha256
from mrcfa.model.config import Config
from mrcfa.stream.stream import Stream
from mrcfa.training.runs import checkpoint_of, is_run
from mrcfa.video.rounds import Segmenter


class NamedSegmenter(Segmenter, Protocol):
    """A segmenter that says what runs, and of which model."""

    @property
    def backend(self) -> str: ...
    @property
    def config(self) -> Config: ...


@dataclass(frozen=True)
class Candidate:
    path: Path
    backend: str = "auto"
    cold_start: ColdStart = ColdStart.STREAM
    single: bool = False
    """Answer every frame with the single-frame head; the graphs do not hold it, the model does."""
    precision: str | None = None
    """Of the bundle's graphs; None takes what the backend prefers."""

    @property
    def identity(self) -> str:
        """Changes with anything that its answers depend on."""
        if is_run(self.path):
            return sha256(checkpoint_of(self.path))
        if is_address(self.path):
            return open_backend(None, str(self.path)).model.to_json()
        return Bundle.open(self.path).manifest.to_json()

    @contextmanager
    def opened(self) -> Iterator[NamedSegmenter]:
        if is_run(self.path) or self.single:
            self._refuse_backends()
            from mrcfa.training.segmenter import ModelSegmenter

            if is_run(self.path):
                yield ModelSegmenter.of_run(self.path, self.single)
            else:
                yield ModelSegmenter.of_bundle(Bundle.open(self.path), self.single)
            return
        backend = self.backend
        if self.cold_start is not ColdStart.STREAM:
            self._refuse_backends()
            backend = "eager"
        with Stream(
            self.path, backend, cold_start=self.cold_start, precision=self.precision
        ) as stream:
            yield stream

    def _refuse_backends(self) -> None:
        """Only the reference model has that head, and a run is nothing else."""
        what = "--single" if self.single else f"--cold-start {self.cold_start.value}"
        if is_run(self.path):
            what = f"the run {self.path}"
        if self.backend not in ("auto", "eager"):
            raise Unsupported(f"{what} needs --backend eager, not {self.backend}")
        if self.precision not in (None, "fp32"):
            raise Unsupported(f"{what} is computed in fp32, not {self.precision}; export it first")
