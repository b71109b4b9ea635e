"""Opens mutated manifests as users do, and reports what became of them.

    python tests/attack_manifests.py BUNDLE COUNT [MRCFA-FUZZ]

Each is opened, inspected and run for a frame, with five seconds for all; then the C++ reader has
them, if the program that CMake builds with -DMRCFA_TESTS=ON is named. Ends with 1 if one of them
met anything but a sentence, took longer, or if 500 MB were not enough.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/doubles")]

import numpy as np  # noqa: E402
from manifest_cases import mutations  # noqa: E402

from mrcfa import MrcfaError, Stream  # noqa: E402
from mrcfa.bundle import MANIFEST, Bundle  # noqa: E402
from mrcfa.bundle.inspection import summary  # noqa: E402

SECONDS = 5
MEGABYTES = 500


def main(bundle: Path, count: int, reader: str | None = None) -> int:
    valid = json.loads((bundle / MANIFEST).read_text())
    became: Counter[str] = Counter()
    read: list[bool] = []
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(bundle, Path(folder) / "bundle", copy_function=os.link))
        (path / MANIFEST).unlink()
        every = (Path(folder) / "manifests.txt").open("w+")
        for text in mutations(valid, count):
            (path / MANIFEST).write_text(text)
            fate = _fate(path)
            became[fate] += 1
            if fate.startswith("FAULT"):
                print(fate, text[:300], sep="\n", file=sys.stderr)
            every.write(text + "\n")
            read.append(fate != "refused by open")
        if reader is not None:
            every.seek(0)
            became.update(_verdicts(reader, path, every, read))
        every.close()
    held = _megabytes_held()
    became[f"{'FAULT: ' if held > MEGABYTES else ''}megabytes held"] = held
    for fate, number in became.most_common():
        print(f"{number:6} {fate}")
    return int(any(fate.startswith("FAULT") for fate in became))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def _megabytes_held() -> int:
    """The most there ever was; `getrusage` also counts what the parent held before `exec`."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    )
    return int(line.split()[1]) // 1024


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))


def _fate(path: Path) -> str:
    stage = "open"
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        bundle = Bundle.open(path)
        stage = "inspect"
        summary(bundle)
        stage = "Stream"
        with Stream(path, "onnxruntime:cpu", threads=1) as stream:
            stream(np.zeros((*bundle.manifest.frame, 3), np.uint8))
    except MrcfaError:
        return f"refused by {stage}"
    except BaseException:
        return f"FAULT in {stage}: {traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "runs"


def _verdicts(reader: str, path: Path, texts: TextIO, read: list[bool]) -> Counter[str]:
    """C++ looks at fewer fields, so it may read what Python refuses; never the other way round."""
    seconds = SECONDS + len(read) / 100
    done = subprocess.run(
        [reader, str(path)],
        stdin=texts,
        capture_output=True,
        text=True,
        timeout=seconds,
        preexec_fn=_limit_memory,
    )
    said = done.stdout.split("\n")[:-1]
    if done.returncode or len(said) != len(read):
        return Counter({f"FAULT: C++ ended with {done.returncode}: {done.stderr[-500:]}": 1})
    found: Counter[str] = Counter()
    for sentence, by_python in zip(said, read, strict=True):
        found["C++ refuses" if sentence else "C++ reads"] += 1
        if sentence and by_python:
            found["FAULT: C++ refuses what Python reads"] += 1
            print(sentence, file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
