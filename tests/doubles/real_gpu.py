"""The GPU of this machine in the double's place: the real driver, watched.

What a test sees of the double it sees here too, as far as a real GPU shows it: which memory is
taken, which graphs there are and how often they are launched. A test that tells the double
something, or asks what the double alone knows, is not run.
"""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mrcfa.errors import MrcfaError
from mrcfa.machine import hardware
from mrcfa.machine.extras import load

AGREEMENT = 0.99
"""NVIDIA's gate for FP16."""
SIMULATED = "not run: it simulates what a real GPU cannot be made to do or to show"


class RealGpu(ModuleType):
    """`cuda.bindings.driver`; `fake_cuda.Driver` says what the other names are."""

    LEGACY, PER_THREAD = 1, 2

    def __init__(self, real: ModuleType, gpu: hardware.Gpu) -> None:
        super().__init__("cuda.bindings.driver")
        told = {"device_name": gpu.name, "sm": gpu.sm, "launches": 0}
        memory, graphs = dict[int, tuple[str, int]](), set[int]()
        vars(self).update(_real=real, memory=memory, graphs=graphs, **told)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or hasattr(self._real, name):
            return getattr(self._real, name)
        pytest.skip(f"{SIMULATED} ({name})")

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, name) != value:  # monkeypatch sets back what it could not set
            pytest.skip(f"{SIMULATED} ({name})")

    def check(self, found: Any, wanted: Any) -> None:
        """Masks, or logits (classes before height and width), of ONNX Runtime on the CPU."""
        found, wanted = (
            each.argmax(axis=-3) if each.dtype.kind == "f" else each
            for each in map(np.asarray, (found, wanted))
        )
        assert found.shape == wanted.shape
        assert (found == wanted).mean() >= AGREEMENT

    def check_cache(self, found: bytes, wanted: bytes) -> None:
        """Compilers do not write the same bytes twice."""
        assert found

    def check_seconds(self, seconds: float) -> None:
        assert seconds > 0

    def device_bytes(self) -> int:
        return sum(nbytes for kind, nbytes in self.memory.values() if kind == "device")

    def cuMemAlloc(self, nbytes):
        return self._noted("device", nbytes, self._real.cuMemAlloc(nbytes))

    def cuMemHostAlloc(self, nbytes, flags):
        return self._noted("pinned", nbytes, self._real.cuMemHostAlloc(nbytes, flags))

    def cuMemFree(self, address):
        del self.memory[int(address)]
        return self._real.cuMemFree(address)

    def cuMemFreeHost(self, address):
        del self.memory[int(address)]
        return self._real.cuMemFreeHost(address)

    def cuGraphInstantiate(self, recorded, flags):
        answer = self._real.cuGraphInstantiate(recorded, flags)
        if not int(answer[0]):
            self.graphs.add(int(answer[1]))
        return answer

    def cuGraphExecDestroy(self, graph):
        self.graphs.remove(int(graph))
        return self._real.cuGraphExecDestroy(graph)

    def cuGraphLaunch(self, graph, stream):
        vars(self)["launches"] += 1
        return self._real.cuGraphLaunch(graph, stream)

    def _noted(self, kind, nbytes, answer):
        if not int(answer[0]):
            self.memory[int(answer[1])] = kind, nbytes
        return answer


def real_gpu() -> RealGpu:
    """Skips the test, with the reason, where there is none that can be used."""
    cards = hardware.gpus()
    if not cards:
        pytest.skip("not run: no GPU is visible here")
    try:
        return RealGpu(load("cuda.bindings.driver"), cards[0])
    except (MrcfaError, ImportError) as error:
        pytest.skip(f"not run: {error}")
