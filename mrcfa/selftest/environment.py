"""Facts about the machine of a measurement: processor, packages, GPU clocks, power mode."""

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import mrcfa
from mrcfa.machine.commit import commit
from mrcfa.machine.hardware import first_gpu_bus
from mrcfa.selftest.findings import findings

DEVFREQ = Path("/sys/class/devfreq")
"""Folder in which a Jetson's kernel reports GPU clocks, because `nvidia-smi` lacks them there."""
_GPU_FIELDS = {
    "name": "name",
    "driver": "driver_version",
    "SM clock": "clocks.sm",
    "highest SM clock": "clocks.max.sm",
    "memory clock": "clocks.mem",
    "power limit": "power.limit",
    "memory": "memory.total",
}
_STEADY = ("name", "driver", "highest SM clock", "power limit", "memory")
"""The fields that are the same for an idle GPU."""
_GPU_STATE = {
    "SM clock": "clocks.sm",
    "memory clock": "clocks.mem",
    "power": "power.draw",
    "temperature": "temperature.gpu",
}


def environment(threads: int | None = None) -> dict[str, str]:
    """Name -> text of every fact about this machine and this code that speed depends on."""
    found = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "mrcfa": mrcfa.__version__,
    }
    if version := commit():
        found["commit"] = version
    if threads is not None:
        found["threads"] = str(threads)
    found |= {finding.name: finding.found for finding in findings() if finding.found}
    if board := jetson_board():
        found["board"] = board
    if mode := _output_of("nvpmodel", "-q"):
        found["power mode"] = " ".join(mode.split())
    if hasattr(os, "getloadavg"):
        found["load before the run"] = f"{os.getloadavg()[0]:.1f}"
    found["system"] = platform.platform()
    found["Python"] = platform.python_version()
    return found


def gpu_facts() -> dict[str, str]:
    """Name, driver and limits of the first GPU, at any time; empty where no tool reports them."""
    found = _query_gpu({field: _GPU_FIELDS[field] for field in _STEADY})
    return {f"GPU {field}": value for field, value in found.items()}


def gpu_clocks() -> dict[str, str]:
    """Name, clocks and limits of the first GPU; call it under load, as idle GPUs lower clocks."""
    found = {f"GPU {field}": value for field, value in _query_gpu(_GPU_FIELDS).items()}
    return found | _kernel_clocks(("clock", "cur_freq"), ("highest clock", "max_freq"))


def gpu_state() -> dict[str, str]:
    """Clocks, power and temperature at this moment; empty where no tool reports them."""
    return _query_gpu(_GPU_STATE) | _kernel_clocks(("clock", "cur_freq"))


def device_memory_used() -> int | None:
    """Bytes in use on the first GPU by all processes; None where no tool reports them."""
    used = _query_gpu({"memory": "memory.used"}).get("memory", "")
    amount, _, unit = used.partition(" ")
    return int(amount) * 2**20 if amount.isdecimal() and unit == "MiB" else None


def jetson_board() -> str | None:
    """Full name of a Jetson board, because CUDA calls every Orin just `Orin`; None elsewhere."""
    path = Path("/proc/device-tree/model")
    return path.read_text().strip("\0\n") if path.is_file() else None


def _kernel_clocks(*files: tuple[str, str]) -> dict[str, str]:
    """GPU clocks that a Jetson's kernel reports; empty on other machines."""
    found = {}
    for device in sorted(DEVFREQ.glob("*gpu*")):
        for what, file in files:
            hertz = (device / file).read_text().strip() if (device / file).is_file() else ""
            if hertz.isdecimal():
                found[f"{device.name} {what}"] = f"{int(hertz) / 1e6:.0f} MHz"
    return found


def _query_gpu(fields: dict[str, str]) -> dict[str, str]:
    query = f"--query-gpu={','.join(fields.values())}"
    which = f"--id={first_gpu_bus() or 0}"
    lines = _output_of("nvidia-smi", query, "--format=csv,noheader", which).splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return dict(zip(fields, values, strict=False))


def _output_of(*command: str) -> str:
    """Output of a tool; empty if the tool is missing, fails or hangs."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
