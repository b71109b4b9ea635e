"""Facts about this machine: memory, processor, GPUs, CUDA driver and installed packages."""

import ctypes
import os
import platform
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

_CC_MAJOR, _CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Gpu:
    """One CUDA device."""

    name: str
    sm: int
    """Compute capability without the dot: 75 for a Quadro RTX 6000."""


def available_memory() -> int | None:
    """Bytes of memory that a process can still use; None where the system does not report it."""
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        limits.append(int(limit) - int(used))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return min(limits, default=None)


def processor() -> str:
    """Model and number of usable cores of the processor."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {usable_cores()} cores"


def usable_cores() -> int:
    """Number of cores that this process may use; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> list[Gpu]:
    """The CUDA devices, from the driver itself, so that no package is needed."""
    cuda = _libcuda()
    count = ctypes.c_int()
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    cards = []
    for ordinal in range(count.value):
        device, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, len(name), device)
        capability = []
        for attribute in (_CC_MAJOR, _CC_MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            capability.append(value.value)
        cards.append(Gpu(name.value.decode(), 10 * capability[0] + capability[1]))
    return cards


def current_gpu() -> int | None:
    """The index of the GPU whose CUDA context is current in this thread; None if none is."""
    cuda = _libcuda()
    context, device = ctypes.c_void_p(), ctypes.c_int()
    if cuda is None or cuda.cuCtxGetCurrent(ctypes.byref(context)) or not context.value:
        return None
    return None if cuda.cuCtxGetDevice(ctypes.byref(device)) else device.value


def first_gpu_bus() -> str | None:
    """PCI bus ID of CUDA's first device, such as `0000:3B:00.0`; other tools number differently."""
    cuda = _libcuda()
    device, bus = ctypes.c_int(), ctypes.create_string_buffer(16)
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return None if cuda.cuDeviceGetPCIBusId(bus, len(bus), device) else bus.value.decode()


def cuda_driver() -> str | None:
    """The CUDA version that the driver supports, such as `13.0`."""
    cuda = _libcuda()
    version = ctypes.c_int()
    if cuda is None or cuda.cuDriverGetVersion(ctypes.byref(version)) or not version.value:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def package_version(module: str, distributions: tuple[str, ...]) -> str | None:
    """The version of an installed package, without importing it."""
    if util.find_spec(module) is None:
        return None
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "unknown version"


def _libcuda() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
