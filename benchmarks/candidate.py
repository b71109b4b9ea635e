"""The subject of `mrcfa eval`: a bundle with a backend, or a run of `mrcfa train`."""

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
    """A segmenter that also names its backend and its model's config."""

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
    """Segment every frame with the single-frame head, which the model has and the graphs lack."""
    precision: str | None = None
    """Precision of the bundle's graphs; None: the backend's default."""

    @property
    def identity(self) -> str:
        """Text that changes with everything the masks depend on: the key of cached scores."""
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
            self.path,
            backend,
            cold_start=self.cold_start,
            precision=self.precision,
            convert_rgb=True,
        ) as stream:
            yield stream

    def _refuse_backends(self) -> None:
        """Raise Unsupported for a backend or precision that the reference model does not have."""
        what = "--single" if self.single else f"--cold-start {self.cold_start.value}"
        if is_run(self.path):
            what = f"the run {self.path}"
        if self.backend not in ("auto", "eager"):
            raise Unsupported(f"{what} needs --backend eager, not {self.backend}")
        if self.precision not in (None, "fp32"):
            raise Unsupported(f"{what} is computed in fp32, not {self.precision}; export it first")
