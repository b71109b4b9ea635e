"""The form of a graph that becomes the engine: the fastest on the target's GPU, or by its cost."""

from collections.abc import Mapping

from mrcfa.bundle.manifest import ChosenBy, FormChoice, Graph, PlanCost
from mrcfa.console.notices import warn
from mrcfa.engines.target import Target
from mrcfa.engines.timing import gpu_for, seconds_of
from mrcfa.errors import MrcfaError
from mrcfa.machine.gpu_models import LAUNCH_S, models_of


def choose_form(
    plans: Mapping[str, bytes],
    costs: Mapping[str, PlanCost | None],
    target: Target,
    graph: Graph,
    version_compatible: bool,
) -> FormChoice:
    """Choose among the plans of all forms, in order of preference where nothing tells them apart.

    A form without a cost is never chosen by cost, unless no form has one.
    """
    first, *others = plans
    if not others:
        return FormChoice(first, ChosenBy.ONLY.value)
    streams = graph.inputs[0].shape[0]
    found, by = _measured(plans, target, graph, version_compatible), ChosenBy.TIME
    if not found:
        known = {name: cost for name, cost in costs.items() if cost is not None}
        found = {name: _estimated(cost, target, streams) for name, cost in known.items()}
        by = ChosenBy.COST
    if not found:
        return FormChoice(first, ChosenBy.ORDER.value)
    milliseconds = {name: 1000 * seconds / streams for name, seconds in found.items()}
    return FormChoice(min(found, key=lambda name: found[name]), by.value, milliseconds)


def _measured(
    plans: Mapping[str, bytes], target: Target, graph: Graph, version_compatible: bool
) -> dict[str, float]:
    """Seconds of one run of each plan; empty if they cannot be measured here."""
    device = gpu_for(target.sms)
    if device is None:
        return {}
    try:
        seconds = seconds_of(target.trt, device, list(plans.values()), version_compatible)
    except MrcfaError as error:
        warn(f"the forms of {graph.file} are not timed: {error}; their costs decide")
        return {}
    return dict(zip(plans, seconds, strict=True))


def _estimated(cost: PlanCost, target: Target, streams: int) -> float:
    """Seconds of one run, as the mean over GPUs of the target's class: memory traffic, and a pause
    after each kernel."""
    gpus = models_of(target.sms)
    moved = (cost.bytes_written + cost.bytes_read) * streams
    return LAUNCH_S * cost.kernels + sum(gpu.memory(moved) for gpu in gpus) / len(gpus)
