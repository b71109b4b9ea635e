"""Launching an engine's kernels one by one or as a CUDA graph."""

from mrcfa.backends.cuda import CudaGraph, CudaStream
from mrcfa.backends.plans import Context, Tensors
from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError


class GraphUse:
    """A switch for CUDA graphs, which turns off when recording one fails."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.failure = ""
        """The reason why recording failed; empty if it did not."""

    def give_up(self, reason: object) -> None:
        if self.wanted:
            self.wanted, self.failure = False, str(reason)
            warn(f"CUDA graphs cannot be recorded: {reason}; kernels are launched one by one")


class Launch:
    """An engine on tensors whose addresses do not change, launched as a CUDA graph if wanted.

    A graph keeps the addresses that it was recorded with, so each of the two memories has its own.
    The context belongs to this graph alone, because other addresses change a context's inner state,
    on which its graph may depend. The first run is not recorded: TensorRT may set itself up in it,
    which recording forbids.
    """

    def __init__(
        self, stream: CudaStream, context: Context, tensors: Tensors, graphs: GraphUse
    ) -> None:
        self._stream, self._context, self._tensors = stream, context, tensors
        self._graphs, self._ran = graphs, False
        self._graph: CudaGraph | None = None

    def __call__(self) -> None:
        if self._graphs.wanted and self._ran and self._graph is None:
            self._record()
        if self._graph is None or not self._graphs.wanted:
            self._enqueue()
        else:
            self._stream.launch(self._graph)
        self._ran = True

    @property
    def nodes(self) -> int:
        """The number of nodes of its graph; 0 if there is none."""
        return 0 if self._graph is None else self._graph.nodes

    def _record(self) -> None:
        if not self._context.recordable(self._stream):
            self._graphs.give_up("this engine allocates memory or waits while it runs")
            return
        try:
            self._graph = self._stream.capture(self._enqueue)
        except MrcfaError as error:
            self._graphs.give_up(error)

    def _enqueue(self) -> None:
        self._context.enqueue(self._tensors, self._stream)
