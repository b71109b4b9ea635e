"""The peer, built by TensorRT like the bundle's own engines: its cost, and how fast it runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mrcfa.backends import Arrays, Backend, Image
from mrcfa.backends.cuda import CudaStream, pinned_array
from mrcfa.backends.cuda_context import Cuda
from mrcfa.backends.lone_plan import LonePlan
from mrcfa.benchmarks.peer import peer_name, written_peer
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, logger
from mrcfa.bundle.layers import BuildLog, read_log
from mrcfa.bundle.manifest import Device, Engine, PlanCost
from mrcfa.bundle.precisions import PREFERRED
from mrcfa.console.notices import warn
from mrcfa.errors import RuntimeFailed, Unsupported, named
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.files import fingerprint, write_whole

PRECISION = PREFERRED[Device.GPU]
"""The precision in which the peer is built, as it would be deployed."""


def peer_costs(bundle: Bundle) -> Mapping[str, PlanCost]:
    """Name of each RTX engine -> the peer's cost on the same GPUs.

    Empty if the bundle has no such engine, or if the builder or torch is missing.
    """
    engines = [engine for engine in bundle.manifest.engines if _comparable(engine)]
    if not engines:
        return {}
    try:
        trt = Flavour.RTX.load()
        path = written_peer(bundle, PRECISION)
    except MissingExtra:
        return {}
    costs = {}
    for engine in engines:
        _, log = _built(trt, Flavour.RTX, path, engine.compute_capabilities)
        if log.cost is not None:
            costs[engine.name] = log.cost
        else:
            warn(f"the peer's cost beside {engine.name} is not known: {named(log.unread, most=3)}")
    return costs


class CompiledPeer(Backend):
    """The peer on this machine's first GPU, launched and copied like `TensorRTBackend`'s streams.

    Its plan is built at the first use and kept in the user's cache.
    """

    on_gpu = True

    def __init__(self, bundle: Bundle, flavour: Flavour) -> None:
        trt, self._cuda = flavour.load(), Cuda()
        self.model, self._answer = bundle.manifest, bundle.manifest.output.value
        path = written_peer(bundle, PRECISION)
        with self._cuda.failures_explained(), self._cuda.current():
            gpu = self._cuda.gpu
            facts = fingerprint(trt.__version__, gpu.name, gpu.sm)
            plan = path.with_suffix(f".{flavour.value}.{facts}.engine")
            if not plan.is_file():
                write_whole(plan, _built(trt, flavour, path, (gpu.sm,))[0])
            self._stream = CudaStream(self._cuda)
            self._plan = LonePlan(self._cuda, trt, plan.read_bytes(), self._stream)
            image, answer = (self._plan.tensors[name] for name in ("image", self._answer))
            self._image = pinned_array(self._cuda, image.shape, image.dtype.name)
            self._host = pinned_array(self._cuda, answer.shape, answer.dtype.name)
        self.name = f"{peer_name(bundle)} in {flavour.value} ({PRECISION}, {gpu.name})"

    def start(self) -> None:
        return None

    def timed_step(self, image: Image, state: None) -> tuple[Arrays, None, dict[str, float]]:
        with self._cuda.failures_explained(), self._cuda.current():
            self._image[...] = image
            self._stream.upload(self._plan.tensors["image"], self._image)
            self._plan.launch()
            self._stream.download(self._host, self._plan.tensors[self._answer])
            self._stream.mark().synchronize()
        return {self._answer: self._host[0].copy()}, None, {}


def _comparable(engine: Engine) -> bool:
    alike = (engine.flavour, engine.precision) == (Flavour.RTX.value, PRECISION)
    return alike and bool(engine.costs)


def _built(trt: Any, flavour: Flavour, path: Path, sms: tuple[int, ...]) -> tuple[bytes, BuildLog]:
    """The peer's plan; TensorRT itself builds for this machine's GPU."""
    with captured_log(trt) as log:
        builder = trt.Builder(logger(trt))
        config = builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if flavour is Flavour.RTX:
            if hasattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION"):  # or no graph can be recorded
                config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
            config.num_compute_capabilities = len(sms)
            for index, sm in enumerate(sms):
                config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{sm}"), index)
        kinds = trt.NetworkDefinitionCreationFlag
        flags = 1 << int(kinds.STRONGLY_TYPED) if hasattr(kinds, "STRONGLY_TYPED") else 0
        network = builder.create_network(flags)
        parser = trt.OnnxParser(network, logger(trt))
        if not parser.parse(path.read_bytes()):
            what = parser.get_error(0).desc()
            raise Unsupported(f"{flavour.product} cannot read the peer: {what}")
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeFailed(f"{flavour.product} cannot build the peer: {first_error(log)}")
    return bytes(plan), read_log(log)
