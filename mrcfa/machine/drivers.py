"""The CUDA versions that installed packages need, from their names and versions alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from mrcfa.machine.extras import install_command

_TENSORRT = re.compile(r"tensorrt(?P<rtx>_rtx)?_cu(?P<cuda>\d+)")
_DRIVERS = {12: "525", 13: "580"}
"""The first Linux driver for each major version of CUDA."""


@dataclass(frozen=True)
class CudaNeed:
    """The CUDA version that one package needs from the driver."""

    package: str
    """Name and version of the package."""
    cuda: str
    """Lowest CUDA version that the driver must support."""
    remedy: str

    def met_by(self, driver_cuda: str) -> bool:
        """True if a driver that supports this CUDA version is new enough."""
        return _numbers(driver_cuda) >= _numbers(self.cuda)


def cuda_needs() -> list[CudaNeed]:
    """The needs of every installed TensorRT wheel and of cuda-python."""
    return sorted({need.package: need for need in _needs()}.values(), key=lambda need: need.package)


def _needs() -> Iterator[CudaNeed]:
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").replace("-", "_").lower()
        package = f"{name.replace('_', '-')} {distribution.version}"
        if match := _TENSORRT.fullmatch(name):
            major = int(match["cuda"])
            yield CudaNeed(package, f"{major}.0", _remedy(name, major, bool(match["rtx"])))
        elif name == "cuda_bindings" and int(distribution.version.split(".")[0]) >= 13:
            # Its timing events need a symbol that drivers have since CUDA 12.8.
            yield CudaNeed(package, "12.8", 'update the driver, or: pip install "cuda-python<13"')


def _remedy(name: str, major: int, rtx: bool) -> str:
    update = f"update the driver to {_DRIVERS.get(major, 'a later one')} or later"
    if major <= 12:
        return update
    stem = name.removesuffix(f"_cu{major}")
    gone = " ".join((stem, name, f"{name}_bindings", f"{name}_libs"))
    instead = install_command("rtx-cu12" if rtx else "tensorrt-cu12")
    return f"{update}, or install the wheels for CUDA 12: pip uninstall -y {gone} && {instead}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
