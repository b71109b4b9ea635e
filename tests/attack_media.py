"""Reads damaged media files as `mrcfa run` does, and reports what became of them.

    python tests/attack_media.py COUNT

That many of each kind of file, with five seconds for each. Ends with 1 if one of them met anything
but a sentence, or took longer.
"""

import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/doubles")]

from damaged_media import FRAMES, damaged_files, whole_files  # noqa: E402

from mrcfa import MrcfaError  # noqa: E402
from mrcfa.video.sources import open_source  # noqa: E402

SECONDS = 5


def main(count: int) -> int:
    became: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as folder:
        for kind, whole in whole_files(Path(folder)).items():
            path = Path(folder) / f"damaged.{kind}"
            for number, data in enumerate(damaged_files(kind, whole, count)):
                path.write_bytes(data)
                fate = _fate(path, FRAMES[kind])
                became[f"{kind} {fate}"] += 1
                if "FAULT" in fate:
                    print(f"{kind} {number}: {fate}", file=sys.stderr)
    for fate, number in sorted(became.items()):
        print(f"{number:6} {fate}")
    return int(any("FAULT" in fate for fate in became))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def _fate(path: Path, frames: int) -> str:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        source = open_source(str(path))
        found = sum(1 for _ in source)
    except MrcfaError:
        return "refused by open"
    except BaseException:
        return f"FAULT: {traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    told = " and says so" if source.complaint else ""
    return f"gives {'all' if found >= frames else 'some' if found else 'no'} frames{told}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
