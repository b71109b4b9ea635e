"""Findings of `mrcfa doctor` on this machine: hardware, drivers, optional packages and tools."""

import shutil
import subprocess
from dataclasses import dataclass

from mrcfa.backends.records import BACKENDS
from mrcfa.machine.extras import install_command
from mrcfa.machine.hardware import cuda_driver, gpus, package_version, processor


@dataclass(frozen=True)
class Finding:
    """One line of `mrcfa doctor`: `found` is a version or description, None if missing."""

    name: str
    found: str | None
    enables: str
    remedy: str
    works: bool | None = None
    """Result of the trial; None if it was not tried."""
    said: str = ""
    """Message of the trial."""


# Packages that no backend needs: import name, extra, distributions that provide it, its use.
_PACKAGES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("onnx", "export", ("onnx",), "mrcfa export"),
    ("onnxscript", "export", ("onnxscript",), "mrcfa export"),
    ("onnxsim", "export", ("onnxsim", "onnx-simplifier"), "mrcfa export"),
    ("tensorrt_rtx", "rtx", ("tensorrt-rtx", "tensorrt_rtx"), "building engines without a GPU"),
    ("tensorrt", "tensorrt", ("tensorrt",), "building engines on the GPU they run on"),
    ("av", "video", ("av",), "reading and writing video"),
    ("PIL", "video", ("pillow",), "images and frames of any size"),
    ("aiohttp", "view", ("aiohttp",), "mrcfa run --view"),
    ("matplotlib", "report", ("matplotlib",), "the report of mrcfa bench"),
)


def findings() -> list[Finding]:
    """Everything `mrcfa doctor` reports, hardware first."""
    cards = gpus()
    shown = ", ".join(f"{card.name} (sm_{card.sm})" for card in cards)
    driver = cuda_driver()
    return [
        Finding("processor", processor(), "everything but TensorRT engines", ""),
        Finding("GPU", shown or None, "running TensorRT engines", "no GPU is visible here"),
        Finding(
            "CUDA driver",
            driver,
            "running TensorRT engines",
            "install NVIDIA's driver, r580 or later",
        ),
        *(
            _package(module, record.extra, distributions, record.enables)
            for record in BACKENDS.values()
            for module, distributions in record.packages.items()
        ),
        *(_package(*row) for row in _PACKAGES),
        Finding(
            "nvcc",
            _nvcc(),
            "compiling the TensorRT plugin",
            "install NVIDIA's CUDA toolkit; only the plugin for large frames needs it",
        ),
    ]


def _package(module: str, extra: str, distributions: tuple[str, ...], enables: str) -> Finding:
    name = distributions[0] if module in ("cuda", "PIL") else module
    return Finding(name, package_version(module, distributions), enables, install_command(extra))


def _nvcc() -> str | None:
    path = shutil.which("nvcc")
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    releases = [line for line in answer.stdout.splitlines() if "release" in line]
    return releases[0].partition("release ")[2].partition(",")[0] if releases else None
