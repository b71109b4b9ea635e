"""The ways in which a bundle could run: each engine, ONNX Runtime's providers, eager."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrcfa.backends.records import BACKENDS, full_name
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device, Engine, Limits
from mrcfa.bundle.precisions import EIGHT_BITS, PREFERRED
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
    absent: str = ""
    """Why this machine cannot run it; empty if nothing is known before it is opened."""
    engine: Engine | None = None

    @property
    def emulated(self) -> bool:
        """True for 8 bits on a CPU, which take seconds per frame: they are made for GPUs."""
        return self.precision in EIGHT_BITS and not self.cuda

    def open(self, path: Path, **options: Any) -> Stream:
        return Stream(path, self.backend, precision=self.precision, **options)


def in_order(ways: Iterable[SelftestWay]) -> list[SelftestWay]:
    """A CPU's usual precision first, which shows if the bundle is sound; then GPUs; then the rest.

    The answers that a GPU owner waits for come within the first minute in this order.
    """
    usual = PREFERRED[Device.CPU]
    return sorted(ways, key=lambda way: 1 if way.cuda else 0 if way.precision == usual else 2)


def ways(bundle: Bundle) -> Iterator[SelftestWay]:
    for kind, record in BACKENDS.items():
        for way in record.ways(bundle):
            yield SelftestWay(
                name=way.name,
                backend=full_name(kind, way.which),
                precision=way.precision if "precision" in record.options else None,
                cuda=way.cuda,
                limits=bundle.manifest.variants[way.variant].limits,
                absent=way.absent,
                engine=way.engine,
            )
