"""Start-up time and peak memory of one contender, measured in a process of its own.

    python -m mrcfa.benchmarks.footprint bundles/vspw-b1 "onnxruntime:cpu fp32" 2

The benchmark loads all backends and torch at once; a user's process holds one backend, no torch.
"""

from time import perf_counter

_BEGAN = perf_counter()

# The clock starts before any other import, so the rest come late and break E402.
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from mrcfa.errors import RuntimeFailed  # noqa: E402
from mrcfa.machine.children import python_command  # noqa: E402

FRAMES = 3
"""Frames to run until all buffers have reached their final size."""
MORE_STREAMS = 2
TIMEOUT_S = 600


@dataclass(frozen=True)
class Footprint:
    start_s: float
    """Seconds from before the first import to the first mask."""
    peak_bytes: int | None
    """Peak memory of the process; None where the system does not report it."""
    device_bytes: int | None
    """Growth of the GPU's memory in use; None without a GPU."""
    stream_bytes: int | None = None
    """GPU memory of each further stream; None without a GPU."""


def footprint(bundle: Path, contender: str, threads: int) -> Footprint:
    command = python_command(
        "-m", "mrcfa.benchmarks.footprint", str(bundle), contender, str(threads)
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFailed(str(error)) from None
    if done.returncode:
        errors = done.stderr.strip() or f"its process ended with exit code {done.returncode}"
        raise RuntimeFailed(errors.splitlines()[-1])
    try:
        figures = done.stdout.splitlines()[-1]  # libraries may print before it
        return Footprint(**json.loads(figures))
    except (ValueError, IndexError, TypeError):
        raise RuntimeFailed("its process did not print the expected figures") from None


def measure(bundle: Path, contender: str, threads: int) -> Footprint:
    import numpy as np

    from mrcfa.backends.records import is_address
    from mrcfa.benchmarks.contenders import CHOICES, contenders
    from mrcfa.bundle import Bundle
    from mrcfa.bundle.manifest import Device
    from mrcfa.selftest.environment import device_memory_used

    opened = Bundle.open(bundle)
    names = (contender,) if is_address(contender) else CHOICES
    chosen = next(row for row in contenders(opened, names, threads) if row.name == contender)
    asked = perf_counter()
    before = device_memory_used() if chosen.device is Device.GPU else None
    waited = perf_counter() - asked
    noise = np.random.default_rng(0)  # mixed classes: the most expensive mask
    manifest = opened.manifest
    image = noise.integers(256, size=manifest.input.shape(manifest.frame), dtype=np.uint8)
    backend = chosen.open()

    def next_state(state: Any) -> Any:
        if not chosen.pipelined:
            return backend.step(image, state)[1]
        begun, state = backend.submit(image, state)
        backend.result(begun)
        return state

    state = next_state(backend.start())
    start_s = perf_counter() - _BEGAN - waited
    for _ in range(FRAMES - 1):
        state = next_state(state)
    after = device_memory_used() if chosen.device is Device.GPU else None
    peak = _peak_bytes()
    if before is None or after is None:
        return Footprint(start_s, peak, None)
    more = [next_state(backend.start()) for _ in range(MORE_STREAMS)]
    crowded = device_memory_used()
    per_stream = None if crowded is None else (crowded - after) // len(more)
    return Footprint(start_s, peak, after - before, per_stream)


def _peak_bytes() -> int | None:
    """Peak memory as VmHWM; ru_maxrss would start from the parent's memory at the fork."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
