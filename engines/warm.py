"""`mrcfa build --warm`: run each engine once, so that later starts find it compiled."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from mrcfa.bundle import Bundle, Unfit
from mrcfa.machine import hardware
from mrcfa.machine.extras import MissingExtra
from mrcfa.stream.stream import Stream


def warmed(path: Path, plugin_library: Path | None = None) -> Iterator[str]:
    """One sentence for each engine of the bundle.

    TensorRT-RTX compiles for a GPU when an engine is first opened on it; the backend keeps the
    result in the user's cache."""
    if not hardware.gpus():
        yield "warming: not run, no GPU is visible here; run mrcfa build --warm where the GPU is"
        return
    for engine in Bundle.open(path).manifest.engines:
        began = perf_counter()
        try:
            with Stream(path, f"tensorrt:{engine.name}", plugin_library=plugin_library) as stream:
                stream(np.zeros(stream.input.shape(stream.size), np.uint8))
        except (MissingExtra, Unfit) as error:
            yield f"warming {engine.name}: not run, {error}"
        else:
            yield f"warmed {engine.name}: its first mask took {perf_counter() - began:.1f} s"
