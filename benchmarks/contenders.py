"""The contenders of a benchmark: one per row, each with the function that opens it."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from mrcfa.backends import BACKENDS, Backend, Options, Unfit, open_backend
from mrcfa.backends.records import full_name, is_address, parts_of
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Device, Engine, Limits
from mrcfa.bundle.precisions import PREFERRED
from mrcfa.errors import InvalidValue, member, named
from mrcfa.machine.extras import extras_named
from mrcfa.machine.hardware import gpus

CLIP = "eager-clip"
REFERENCE = "eager"
NO_GRAPHS = "(no CUDA graphs)"
PIPELINED = "(pipelined)"
SERVERS = tuple(record.usage for record in BACKENDS.values() if record.schemes)
USUAL = (CLIP, *(name for name in reversed(BACKENDS) if not BACKENDS[name].schemes))
CHOICES = (
    *USUAL,
    *(f"{name}:{place.name}" for name, record in BACKENDS.items() for place in record.places),
)


class Role(str, Enum):
    CLIP = "clip"
    """The paper's model, which encodes four frames per output: the baseline for speed."""
    REFERENCE = "reference"
    """The same model, streamed: the reference for parity."""
    STREAM = "stream"
    """A backend that must match the reference."""
    PEER = "peer"
    """Another model, compared in speed only."""


@dataclass(frozen=True)
class Contender:
    name: str
    role: Role
    device: Device
    limits: Limits
    """Largest allowed differences from the reference."""
    create: Callable[[], Backend]
    precision: str = "fp32"
    engine: Engine | None = None
    """The TensorRT engine of a row that uses CUDA graphs; None for other rows."""
    pipelined: bool = False
    """True if two frames are in flight."""
    cuda: bool = False
    """True if it needs an NVIDIA GPU."""
    absent: str = ""
    """Why this machine cannot run it; empty if nothing is known before it is opened."""

    @property
    def compared(self) -> bool:
        """True if its masks are compared with the reference's."""
        return self.role in (Role.CLIP, Role.STREAM)

    def open(self) -> Backend:
        """Load the backend; the error of one that cannot run here says why in one sentence."""
        if self.cuda and not gpus():
            raise Unfit("no CUDA device")
        if self.absent:
            raise Unfit(self.absent)
        with warnings.catch_warnings(), extras_named():
            warnings.simplefilter("ignore")  # of ONNX Runtime, about providers that we check anyway
            return self.create()


def check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in CHOICES and not is_address(name)]
    if unknown or not names:
        raise InvalidValue(
            f"unknown backend {named(map(repr, unknown)) or 'none'}; choose from {named(CHOICES)}, "
            f"or a server: {named(SERVERS)}"
        )


def contenders(
    bundle: Bundle, names: Iterable[str], threads: int, peer: bool = True
) -> list[Contender]:
    """One contender for each backend, provider, precision and engine that `names` select."""
    rows = [row for name in names for row in _contenders(bundle, name, threads)]
    if peer:
        devices = dict.fromkeys([Device.CPU, *(row.device for row in rows)])
        flavours = dict.fromkeys(row.engine.flavour for row in rows if row.engine)
        rows += [_peer(bundle, device, threads) for device in devices]
        rows += [_compiled_peer(bundle, flavour) for flavour in flavours]
    return list({row.name: row for row in rows}.values())


def reference(bundle: Bundle, threads: int) -> Contender:
    return next(_contenders(bundle, REFERENCE, threads))


def _contenders(bundle: Bundle, name: str, threads: int) -> Iterator[Contender]:
    kind, which = parts_of(name)
    if kind == CLIP:
        limits = bundle.variant(Device.CPU).limits
        yield Contender(name, Role.CLIP, Device.CPU, limits, partial(_eager_clip, bundle, threads))
        return
    record, role = BACKENDS[kind], Role.REFERENCE if kind == REFERENCE else Role.STREAM
    ways = list(record.ways(bundle, which))
    for way in ways:
        options = Options(
            precision=way.precision if "precision" in record.options else None,
            threads=threads if "threads" in record.options else 0,
        )
        place = full_name(kind, way.which)
        opened = partial(open_backend, bundle, place, options)
        row = Contender(
            name=way.name,
            role=role,
            device=way.device,
            limits=bundle.manifest.variants[way.variant].limits,
            create=opened,
            precision=way.precision,
            cuda=way.cuda,
            absent=way.absent,
        )
        yield replace(row, engine=way.engine)
        if "cuda_graphs" in record.options:
            singly = partial(open_backend, bundle, place, replace(options, cuda_graphs=False))
            yield replace(row, name=f"{way.name} {NO_GRAPHS}", create=singly)
        if record.overlaps_frames:
            yield replace(row, name=f"{way.name} {PIPELINED}", pipelined=True)
    if not ways:
        limits = bundle.variant(Device.CPU).limits
        yield Contender(name, role, Device.CPU, limits, partial(open_backend, bundle, name))


def _eager_clip(bundle: Bundle, threads: int) -> Backend:
    from mrcfa.benchmarks.eager_clip import EagerClip

    return EagerClip(bundle, threads)


def _peer(bundle: Bundle, device: Device, threads: int) -> Contender:
    """SegFormer in the precision and with the provider that are usual on this device."""
    provider, precision = "cpu" if device is Device.CPU else "cuda", PREFERRED[device]
    cuda = device is Device.GPU
    name = f"segformer-{bundle.config.backbone} onnxruntime:{provider} {precision}"
    opened = partial(_segformer, bundle, provider, precision, threads)
    limits = bundle.variant(Device.CPU).limits
    return Contender(name, Role.PEER, device, limits, opened, cuda=cuda)


def _compiled_peer(bundle: Bundle, flavour: str) -> Contender:
    """SegFormer as an engine, beside our engines of the same flavour."""
    precision = PREFERRED[Device.GPU]
    name = f"segformer-{bundle.config.backbone} {flavour} {precision}"
    opened = partial(_segformer_engine, bundle, flavour)
    limits = bundle.variant(Device.CPU).limits
    return Contender(name, Role.PEER, Device.GPU, limits, opened, precision=precision, cuda=True)


def _segformer_engine(bundle: Bundle, flavour: str) -> Backend:
    from mrcfa.benchmarks.compiled import CompiledPeer

    return CompiledPeer(bundle, member(Flavour, flavour, "flavour"))


def _segformer(bundle: Bundle, provider: str, precision: str, threads: int) -> Backend:
    from mrcfa.benchmarks.peer import Peer

    return Peer(bundle, provider, precision, threads)
