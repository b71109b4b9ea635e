"""Does `mrcfa run` keep its backend busy? Wall time of a run against the backend's own time.

    python -m benchmarks.overlap bundles/vspw-b1

The backend's own time is that of the same frames from memory, one after the other, with nothing
else going on. Both are measured in turns and the least of each is taken, so that a neighbour on
the machine disturbs the ratio less. Prints one line of JSON; exit code 1 if the limit is missed.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sample import RATE, scene
from mrcfa.checks import Check
from mrcfa.machine import processor
from mrcfa.overlay import Renderer, Style
from mrcfa.segment import segment
from mrcfa.sinks import open_sink
from mrcfa.sources import open_source
from mrcfa.stream import Stream

FRAMES = 100
ROUNDS = 3
LIMIT = 1.15


def ratio(bundle: Path) -> tuple[str, float, float]:
    """The backend, its own seconds for the clip, and the seconds of a whole run."""
    alone, whole = [], []
    with tempfile.TemporaryDirectory() as scratch, Stream(bundle) as stream:
        video, result = (str(Path(scratch) / name) for name in ("in.mp4", "out.mp4"))
        with open_sink(video, stream.classes, stream.palette, RATE) as write:
            for image, _ in scene(FRAMES, stream.size, seed=0):
                write("", image)
        images = [frame.image for frame in open_source(video)]
        render = Renderer(Style.OVERLAY, stream.classes, stream.palette)
        for _ in range(ROUNDS):
            stream.reset()
            began = time.perf_counter()
            for image in images:
                stream(image)
            alone.append(time.perf_counter() - began)
            began = time.perf_counter()
            with open_sink(result, stream.classes, stream.palette, RATE) as write:
                segment(open_source(video), stream, render, write)
            whole.append(time.perf_counter() - began)
        return stream.backend, min(alone), min(whole)


if __name__ == "__main__":
    backend, alone_s, whole_s = ratio(Path(sys.argv[1]))
    check = Check("run / backend alone", whole_s / alone_s, "<=", LIMIT)
    facts = {"backend": backend, "processor": processor(), "frames": FRAMES}
    print(json.dumps({**facts, "alone_s": alone_s, "run_s": whole_s, **check.to_json()}))
    sys.exit(not check.passed)
