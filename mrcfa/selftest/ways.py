"""The ways in which a bundle could run: each engine, ONNX Runtime's providers, eager."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrcfa.backends.records import BACKENDS, full_name
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Engine, Limits
from mrcfa.stream.stream import Stream


@dataclass(frozen=True)
class SelftestWay:
    name: str
    """Name as in the rows of `mrcfa bench`: `onnxruntime:cpu fp32`, `rtx fp16 sm75`."""
    backend: str
    """Value of `Stream`'s argument `backend`."""
    precision: str | None
    cuda: bool
    """True if it needs an NVIDIA GPU."""
    limits: Limits
    engine: Engine | None = None

    def open(self, path: Path, **options: Any) -> Stream:
        return Stream(path, self.backend, precision=self.precision, **options)


def ways(bundle: Bundle) -> Iterator[SelftestWay]:
    for kind, record in BACKENDS.items():
        for way in record.ways(bundle):
            yield SelftestWay(
                name=way.name,
                backend=full_name(kind, way.which),
                precision=way.precision if "precision" in record.options else None,
                cuda=way.cuda,
                limits=bundle.manifest.variants[way.variant].limits,
                engine=way.engine,
            )
