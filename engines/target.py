"""`Target`: the TensorRT and the GPUs that an engine is built for, and how they are chosen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Device
from mrcfa.bundle.precisions import PREFERRED, precision_named
from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.gpus import JETSONS
from mrcfa.errors import Unsupported, named
from mrcfa.machine import hardware
from mrcfa.machine.extras import MissingExtra, install_command

OLDEST_TENSORRT = (10, 3)
"""The version of JetPack 6. Older ones lack LayerNormalization, strong typing or IPluginV3."""
WITHOUT_GPU = ((75,), (86, 89))
"""The targets of a build without a GPU: Turing (the paper's Quadro RTX 6000), and Ampere with Ada.
An engine for Turing and others runs Turing's kernels everywhere, so Turing has its own engine."""


@dataclass(frozen=True)
class Target:
    flavour: Flavour
    trt: ModuleType
    sms: tuple[int, ...]
    gpu: str | None = None
    """Name of the GPU of this machine, if the engine is for this model alone."""

    @property
    def name(self) -> str:
        return f"{self.flavour.product} {self.trt.__version__}"

    @property
    def tag(self) -> str:
        """`rtx-sm86-sm89`, for file names."""
        return "-".join([self.flavour.value, *(f"sm{sm}" for sm in self.sms)])


def choose_targets(
    flavour: FlavourChoice = FlavourChoice.AUTO,
    sms: Sequence[int] = (),
    precision: str = PREFERRED[Device.GPU],
) -> list[Target]:
    """The targets, each of which gets an engine.

    The compute capabilities asked for are one target. Without any, each GPU of this machine is one,
    or the first GPU alone with TensorRT itself; without a GPU they are those of `WITHOUT_GPU`.
    `auto` takes TensorRT if it is installed and the GPU is here, else TensorRT-RTX.
    """
    record = precision_named(precision)
    first_sm = record.first_sm
    present = dict.fromkeys(gpu.sm for gpu in hardware.gpus())
    here = [sm for sm in present if sm >= first_sm]
    lacking = sorted(sm for sm in sms or ([] if here else present) if sm < first_sm)
    if lacking:
        raise Unsupported(
            f"{_listed(lacking)} has no {precision.upper()}, which begins with sm_{first_sm}: "
            f"build for --sm {first_sm} or later, or another --precision"
        )
    if sms or flavour is FlavourChoice.TENSORRT:
        return [choose_target(flavour, sms)]
    if here:
        first, *others = here
        target = choose_target(flavour, [first])
        if target.flavour is Flavour.TENSORRT:
            return [target]
        return [target, *(choose_target(flavour, [sm]) for sm in others)]
    oldest = max(first_sm, record.first_rtx_sm)
    able = (tuple(sm for sm in group if sm >= oldest) for group in WITHOUT_GPU)
    return [choose_target(flavour, group) for group in able if group]


def choose_target(flavour: FlavourChoice, sms: Sequence[int]) -> Target:
    """One target for all these compute capabilities; TensorRT takes this machine's GPU instead."""
    if flavour is FlavourChoice.TENSORRT:
        return _on_this_gpu(sms)
    if flavour is FlavourChoice.RTX:
        return _for_any_rtx(sms)
    gpus = hardware.gpus()
    if gpus and set(sms) <= {gpus[0].sm}:
        try:
            return _on_this_gpu(sms)
        except MissingExtra:
            pass
    try:
        return _for_any_rtx(sms)
    except MissingExtra:
        raise MissingExtra(
            "no TensorRT is installed: TensorRT-RTX builds for RTX GPUs on any hardware, "
            f"{install_command('rtx')}; TensorRT for the GPU it runs on, "
            f"{install_command('tensorrt')}, and a Jetson has it from JetPack"
        ) from None


def _on_this_gpu(sms: Sequence[int]) -> Target:
    trt = Flavour.TENSORRT.load()
    version = tuple(int(part) for part in re.findall(r"\d+", trt.__version__)[:2])
    if version < OLDEST_TENSORRT:
        oldest = ".".join(map(str, OLDEST_TENSORRT))
        raise Unsupported(f"TensorRT {trt.__version__} is too old; mrcfa needs {oldest} or later")
    gpus = hardware.gpus()
    if not gpus:
        raise Unsupported(
            "TensorRT builds for the GPU of its machine alone, and none is visible here; "
            "--flavour rtx builds without one"
        )
    others = sorted(set(sms) - {gpus[0].sm})
    if others:
        raise Unsupported(
            f"TensorRT builds for the GPU of its machine alone, {gpus[0].name} (sm_{gpus[0].sm}), "
            f"and not for {_listed(others)}; --flavour rtx builds for others"
        )
    return Target(Flavour.TENSORRT, trt, (gpus[0].sm,), gpus[0].name)


def _for_any_rtx(sms: Sequence[int]) -> Target:
    for sm in sms:
        if sm in JETSONS:
            raise Unsupported(f"sm_{sm} is {JETSONS[sm]}")
    trt = Flavour.RTX.load()
    known = sorted(
        int(name[2:]) for name in trt.ComputeCapability.__members__ if re.fullmatch(r"SM\d+", name)
    )
    unknown = sorted(set(sms) - set(known))
    if unknown:
        raise Unsupported(
            f"TensorRT-RTX {trt.__version__} builds for {_listed(known)}, not for "
            f"{_listed(unknown)}; TensorRT on a machine with such a GPU may: --flavour tensorrt"
        )
    return Target(Flavour.RTX, trt, tuple(sorted({*sms})))


def _listed(sms: Sequence[int]) -> str:
    return named(f"sm_{sm}" for sm in sms)
