"""The peer's cost when TensorRT-RTX builds it like the bundle's own engines; no GPU is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mrcfa.benchmarks.peer import peer_file
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, logger
from mrcfa.bundle.layers import read_log
from mrcfa.bundle.manifest import Device, Engine, PlanCost
from mrcfa.bundle.precisions import PREFERRED
from mrcfa.errors import RuntimeFailed, Unsupported
from mrcfa.machine.extras import MissingExtra, load

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
        path = peer_file(bundle, PRECISION)
        if not path.is_file():
            load("mrcfa.benchmarks.segformer").write_segformer(bundle, PRECISION, path)
    except MissingExtra:
        return {}
    costs = {engine.name: _cost(trt, path, engine.compute_capabilities) for engine in engines}
    return {name: cost for name, cost in costs.items() if cost is not None}


def _comparable(engine: Engine) -> bool:
    alike = (engine.flavour, engine.precision) == (Flavour.RTX.value, PRECISION)
    return alike and bool(engine.costs)


def _cost(trt: Any, path: Path, sms: tuple[int, ...]) -> PlanCost | None:
    with captured_log(trt) as log:
        builder = trt.Builder(logger(trt))
        config = builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        config.num_compute_capabilities = len(sms)
        for index, sm in enumerate(sms):
            config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{sm}"), index)
        network = builder.create_network(1 << int(_strongly_typed(trt)))
        parser = trt.OnnxParser(network, logger(trt))
        if not parser.parse(path.read_bytes()):
            raise Unsupported(f"TensorRT-RTX cannot read the peer: {parser.get_error(0).desc()}")
        if builder.build_serialized_network(network, config) is None:
            raise RuntimeFailed(f"TensorRT-RTX cannot build the peer: {first_error(log)}")
    return read_log(log).cost


def _strongly_typed(trt: Any) -> Any:
    return trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
