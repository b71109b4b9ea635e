"""What installed packages ask of NVIDIA's driver, known from their names and versions alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from mrcfa.machine.extras import install_command

_TENSORRT = re.compile(r"tensorrt(?P<rtx>_rtx)?_cu(?P<cuda>\d+)")
_DRIVERS = {12: "525", 13: "580"}
"""CUDA's major version -> the first driver on Linux that runs it."""


@dataclass(frozen=True)
class CudaNeed:
    package: str
    """With its version."""
    cuda: str
    """The lowest CUDA version that the driver must know."""
    remedy: str

    def met_by(self, driver_cuda: str) -> bool:
        return _numbers(driver_cuda) >= _numbers(self.cuda)


def cuda_needs() -> list[CudaNeed]:
    """Of every installed TensorRT wheel, and of cuda-python."""
    return sorted({need.package: need for need in _needs()}.values(), key=lambda each: each.package)


def _needs() -> Iterator[CudaNeed]:
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").replace("-", "_").lower()
        package = f"{name.replace('_', '-')} {distribution.version}"
        if match := _TENSORRT.fullmatch(name):
            major = int(match["cuda"])
            yield CudaNeed(package, f"{major}.0", _remedy(name, major, bool(match["rtx"])))
        elif name == "cuda_bindings" and int(distribution.version.split(".")[0]) >= 13:
            # Timing events are asked for by a name that drivers have from CUDA 12.8 on.
            yield CudaNeed(package, "12.8", 'update the driver, or: pip install "cuda-python<13"')


def _remedy(name: str, major: int, rtx: bool) -> str:
    update = f"update the driver to {_DRIVERS.get(major, 'a later one')} or later"
    if major <= 12:
        return update
    stem = name.removesuffix(f"_cu{major}")
    gone = " ".join((stem, name, f"{name}_bindings", f"{name}_libs"))
    instead = install_command("rtx-cu12" if rtx else "tensorrt-cu12")
    return f"{update}, or take the wheels for CUDA 12: pip uninstall -y {gone} && {instead}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
