"""What TensorRT-RTX makes of the peer, built as the bundle's own engines are: no GPU is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mrcfa.benchmarks.peer import peer_file
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, logger
from mrcfa.bundle.layers import layers, plan_cost
from mrcfa.bundle.manifest import Engine, PlanCost
from mrcfa.errors import RuntimeFailed, Unsupported
from mrcfa.machine.extras import MissingExtra, load


def peer_costs(bundle: Bundle) -> Mapping[str, PlanCost]:
    """The peer's cost for the GPUs of each RTX engine, by the engine's name.

    Empty where the bundle has no such engines, or where the builder or torch is missing.
    """
    engines = [each for each in bundle.manifest.engines if _comparable(each)]
    if not engines:
        return {}
    try:
        trt = Flavour.RTX.load()
        path = peer_file(bundle, "fp16")
        if not path.is_file():
            load("mrcfa.benchmarks.segformer").write_segformer(bundle, "fp16", path)
    except MissingExtra:
        return {}
    costs = {each.name: _cost(trt, path, each.compute_capabilities) for each in engines}
    return {name: cost for name, cost in costs.items() if cost is not None}


def _comparable(engine: Engine) -> bool:
    return (engine.flavour, engine.precision) == (Flavour.RTX.value, "fp16") and bool(engine.costs)


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
    return plan_cost(layers(log), log)


def _strongly_typed(trt: Any) -> Any:
    return trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
