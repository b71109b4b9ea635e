"""Check that an engine's kernels are recorded as CUDA graphs, which are not empty."""

from mrcfa.backends import Options, open_backend
from mrcfa.backends.tensorrt import TensorRTBackend
from mrcfa.bundle import Bundle
from mrcfa.selftest.expected import Masks
from mrcfa.selftest.line import REPORT, Fault, Found
from mrcfa.selftest.ways import SelftestWay


def recorded(bundle: Bundle, way: SelftestWay, frames: Masks) -> Found:
    """The number of nodes of each graph, once these frames are segmented; a Fault if one has none.

    The backend is that of the way's streams, so graphs that failed in one of them are known here.
    """
    backend = open_backend(bundle, way.backend, Options(precision=way.precision))
    assert isinstance(backend, TensorRTBackend)  # of an engine
    state = backend.start()
    for frame in frames:
        _, state = backend.step(frame, state)
    nodes = backend.graph_nodes(state)
    backend.finish(state)
    if backend.graphs_failure:
        raise Fault(f"they cannot be recorded: {backend.graphs_failure}", REPORT, nodes=nodes)
    words = ", ".join(f"{part} {' and '.join(map(str, each))}" for part, each in nodes.items())
    if not all(all(each) for each in nodes.values()):
        raise Fault(f"not all are recorded: {words} nodes", REPORT, nodes=nodes)
    return Found(f"recorded: {words} nodes", {"nodes": nodes})
