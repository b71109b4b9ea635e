"""Rules that decide which engine, which GPU and which backend runs, and what the user is told.

They are functions of facts: none of them touches a GPU. C++ has the same ones in
engines/cpp/src/fitting.cpp, and the cases of tests/golden/engines.json try both.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from mrcfa.bundle import Unfit
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Device, Engine
from mrcfa.bundle.precisions import PREFERRED
from mrcfa.errors import MrcfaError, NotFound, Unsupported, member, named
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.hardware import Gpu

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True)
class Library:
    """A TensorRT that is installed here."""

    version: str
    cuda: int | None = None
    """The CUDA major version that its package was built for; None if unknown."""


@dataclass(frozen=True)
class Machine:
    """Facts about this machine that decide which engines can run."""

    gpu: Gpu
    driver: tuple[int, int]
    """The newest CUDA version that NVIDIA's driver supports, such as (13, 0)."""
    library: Callable[[Flavour], Library]
    """Raises MissingExtra if that TensorRT is not installed, MrcfaError if it does not load."""


@dataclass(frozen=True)
class Candidate:
    """An engine that was asked for, and the reason why it cannot run here."""

    engine: Engine
    reason: str = ""
    """Empty if nothing is known against the engine."""
    caution: str = ""
    """A sentence for the user if this engine runs; empty if there is nothing to say."""
    for_others: bool = False
    """True if it was built for another GPU or flavour. A bundle may serve many machines, so such
    an engine is skipped without a notice where another one runs."""


def requested(
    engines: Sequence[Engine], which: str, precision: str | None, bundle: Path
) -> list[Engine]:
    """The engines of that name or flavour and precision, in order of preference.

    The order is: FP16 first; then fewer GPU architectures, because an engine for several runs the
    kernels of the oldest; then the newest engine, which is the last in the manifest.
    """
    found = [
        engine
        for engine in reversed(engines)
        if which in ("", engine.name, engine.flavour) and precision in (None, engine.precision)
    ]
    if not found:
        wanted = " ".join(word for word in (which, precision) if word)
        present = named(engine.name for engine in engines) or "none"
        raise Unfit(
            f"{bundle} has no engine {wanted or 'yet'} (it has {present}); "
            f"build one with: mrcfa build {bundle}"
        )
    preferred = PREFERRED[Device.GPU]
    return sorted(
        found, key=lambda engine: (engine.precision != preferred, len(engine.compute_capabilities))
    )


def candidates(engines: Iterable[Engine], machine: Machine, bundle: Path) -> Iterator[Candidate]:
    """The engines in the same order, checked against the machine when their turn comes.

    A TensorRT is imported only if an engine for this GPU needs it.
    """
    for engine in engines:
        sm = machine.gpu.sm
        if sm not in engine.compute_capabilities:
            built = named(f"sm_{target}" for target in engine.compute_capabilities)
            reason = (
                f"the engine {engine.name} was built for {built} and {machine.gpu.name} is "
                f"sm_{sm}; build one for it with: mrcfa build {bundle} --sm {sm}"
            )
            yield Candidate(engine, reason, for_others=True)
            continue
        try:
            flavour = member(Flavour, engine.flavour, "flavour")
            library = machine.library(flavour)
        except MrcfaError as error:
            yield Candidate(engine, str(error), for_others=isinstance(error, MissingExtra))
            continue
        reason = _misfit(engine, flavour, library, machine.driver, bundle)
        yield Candidate(engine, reason, _caution(engine, machine.gpu, bundle))


def first_loaded(
    candidates: Iterable[Candidate], load: Callable[[Engine], _Loaded]
) -> tuple[_Loaded, str]:
    """The result of `load` for the first engine that is not `Unfit`, and a notice.

    The notice says why better engines were skipped, and what to expect of this one; it is empty if
    there is nothing to say.
    """
    reasons: list[str] = []
    unexpected: list[str] = []
    for candidate in candidates:
        reason = candidate.reason
        if not reason:
            try:
                loaded = load(candidate.engine)
            except Unfit as error:
                reason = str(error)
            else:
                sentences = [candidate.caution] if candidate.caution else []
                if unexpected:
                    instead = f"the engine {candidate.engine.name} runs instead of a better one"
                    sentences = [f"{instead}: {_joined(unexpected)}", *sentences]
                return loaded, _joined(sentences)
        reasons.append(reason)
        if not candidate.for_others:
            unexpected.append(reason)
    raise Unfit(_joined(reasons))


class Opened(Protocol):
    """An open backend, as far as the choice between backends depends on it."""

    name: str
    on_gpu: bool


_Opened = TypeVar("_Opened", bound=Opened)


def first_opened(
    attempts: Iterable[Callable[[], _Opened]],
    bundle: Path,
    gpus: Callable[[], int],
    strict: bool,
) -> tuple[_Opened, str]:
    """The first backend that opens, and a notice if a GPU is there that could do better.

    Only backends that the bundle allows are attempted. So if a CPU backend opens and none failed
    before it, the bundle has no engine. With `strict` the notice is an error. It is empty if there
    is nothing to report.
    """
    reasons: list[str] = []
    for attempt in attempts:
        try:
            opened = attempt()
        except (MissingExtra, Unfit) as error:
            reasons.append(str(error))
            continue
        if not reasons and not opened.on_gpu:
            reasons = [f"{bundle} has no engine yet; build one with: mrcfa build {bundle}"]
        if not reasons or not gpus():
            return opened, ""
        if strict:
            raise Unsupported(f"only {opened.name} can run {bundle} here: {_joined(reasons)}")
        return opened, f"{opened.name} runs instead of TensorRT: {_joined(reasons)}"
    raise Unsupported(f"no backend can run {bundle} here: {_joined(reasons)}")


def chosen_device(asked: int | None, current: int | None, gpus: int) -> int:
    """The index of the GPU to use: the one asked for, else the current context's, else the first.

    `gpus` is the number of GPUs here; 0 if it is not known.
    """
    if asked is None:
        return current or 0
    if gpus and asked >= gpus:
        raise NotFound(f"there is no GPU {asked}; the last one here is GPU {gpus - 1}")
    return asked


def engine_title(engine: Engine, gpu: Gpu, cuda_graphs: bool) -> str:
    """The name of a backend that runs this engine, launched as CUDA graphs or kernel by kernel."""
    suffix = "" if cuda_graphs else ", without CUDA graphs"
    return f"tensorrt ({engine.name}, {gpu.name}{suffix})"


def _misfit(
    engine: Engine, flavour: Flavour, library: Library, driver: tuple[int, int], bundle: Path
) -> str:
    """Why an engine of the right GPU and flavour cannot run here; empty if nothing is known."""
    parts = 1 if engine.version_compatible else 3  # a build number is left to TensorRT to judge
    if library.version.split(".")[:parts] != engine.tensorrt.split(".")[:parts]:
        return (
            f"the engine {engine.name} was built with {flavour.product} {engine.tensorrt} and this "
            f"machine has {library.version}; build it again with: mrcfa build {bundle}, or install "
            f"{engine.tensorrt}"
        )
    if library.cuda is not None and driver[0] < library.cuda:
        package = flavour.module.replace("_", "-")
        return (
            f"{package} is installed for CUDA {library.cuda} and NVIDIA's driver supports CUDA up "
            f"to {dotted(driver)}; update the driver, or install {package}-cu{driver[0]} instead"
        )
    return ""


def _caution(engine: Engine, gpu: Gpu, bundle: Path) -> str:
    """A warning if the engine's kernels were chosen on another GPU of this compute capability."""
    if engine.gpu in (None, gpu.name):
        return ""
    return (
        f"the engine {engine.name} was built on {engine.gpu}, so it may be slower on {gpu.name} or "
        f"fail; build it again here with: mrcfa build {bundle}"
    )


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _joined(reasons: list[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))
