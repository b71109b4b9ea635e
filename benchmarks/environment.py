"""The machine of a benchmark: processor, packages, GPU clocks, power mode."""

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import mrcfa
from mrcfa.machine.hardware import first_gpu_bus
from mrcfa.selftest.findings import findings

DEVFREQ = Path("/sys/class/devfreq")
"""Where a Jetson's kernel tells the clocks that `nvidia-smi` does not know there."""
_GPU_FIELDS = {
    "name": "name",
    "driver": "driver_version",
    "SM clock": "clocks.sm",
    "highest SM clock": "clocks.max.sm",
    "memory clock": "clocks.mem",
    "power limit": "power.limit",
}


_GPU_STATE = {
    "SM clock": "clocks.sm",
    "memory clock": "clocks.mem",
    "power": "power.draw",
    "temperature": "temperature.gpu",
}


def environment(threads: int) -> dict[str, str]:
    """Everything about this machine that speed depends on, in words."""
    found = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "mrcfa": mrcfa.__version__,
        "threads": str(threads),
    }
    found |= {each.name: each.found for each in findings() if each.found}
    if board := jetson_board():
        found["board"] = board
    if mode := _answer("nvpmodel", "-q"):
        found["power mode"] = " ".join(mode.split())
    if hasattr(os, "getloadavg"):
        found["load before the run"] = f"{os.getloadavg()[0]:.1f}"
    found["system"] = platform.platform()
    found["Python"] = platform.python_version()
    return found


def gpu_clocks() -> dict[str, str]:
    """Name, clocks and limits of the first GPU. Ask while it works: an idle one clocks down."""
    found = {f"GPU {field}": value for field, value in _ask_gpu(_GPU_FIELDS).items()}
    return found | _kernel_clocks(("clock", "cur_freq"), ("highest clock", "max_freq"))


def gpu_state() -> dict[str, str]:
    """Clocks, power and temperature at this moment; nothing where nobody tells."""
    return _ask_gpu(_GPU_STATE) | _kernel_clocks(("clock", "cur_freq"))


def device_memory_used() -> int | None:
    """Bytes in use on the first GPU, by all processes; None where nobody tells."""
    used = _ask_gpu({"memory": "memory.used"}).get("memory", "")
    amount, _, unit = used.partition(" ")
    return int(amount) * 2**20 if amount.isdecimal() and unit == "MiB" else None


def jetson_board() -> str | None:
    """`NVIDIA Jetson AGX Orin Developer Kit`; CUDA calls every Orin just Orin."""
    path = Path("/proc/device-tree/model")
    return path.read_text().strip("\0\n") if path.is_file() else None


def _kernel_clocks(*files: tuple[str, str]) -> dict[str, str]:
    """A Jetson's."""
    found = {}
    for device in sorted(DEVFREQ.glob("*gpu*")):
        for what, file in files:
            hertz = (device / file).read_text().strip() if (device / file).is_file() else ""
            if hertz.isdecimal():
                found[f"{device.name} {what}"] = f"{int(hertz) / 1e6:.0f} MHz"
    return found


def _ask_gpu(fields: dict[str, str]) -> dict[str, str]:
    query = f"--query-gpu={','.join(fields.values())}"
    which = f"--id={first_gpu_bus() or 0}"
    lines = _answer("nvidia-smi", query, "--format=csv,noheader", which).splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return dict(zip(fields, values, strict=False))


def _answer(*command: str) -> str:
    """What a tool prints; nothing if it is missing, fails or hangs."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
