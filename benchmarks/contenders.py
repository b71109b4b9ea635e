"""What a benchmark compares: one contender for each row, with the way to open it."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from mrcfa.backends import Backend, Unfit, open_backend
from mrcfa.bundle import Bundle
from mrcfa.errors import MrcfaError, named
from mrcfa.extras import load
from mrcfa.machine import gpus

PROVIDERS = ("cpu", "cuda", "tensorrt")
BACKENDS = ("eager-clip", "eager", "onnxruntime", "tensorrt")
CHOICES = (*BACKENDS, *(f"onnxruntime:{provider}" for provider in PROVIDERS))


class Role(str, Enum):
    CLIP = "clip"
    """The paper's model, four frames for each output: where speed is measured from."""
    REFERENCE = "reference"
    """The same model streamed: where parity is measured from."""
    STREAM = "stream"
    """What is to be as the reference is, but faster."""
    PEER = "peer"
    """Another model, compared in speed alone."""


@dataclass(frozen=True)
class Contender:
    name: str
    role: Role
    precision: str
    device: str
    """`cpu` or `cuda`."""
    create: Callable[[], Backend]

    @property
    def compared(self) -> bool:
        """Whether its masks must be the reference's."""
        return self.role in (Role.CLIP, Role.STREAM)

    @property
    def in_parts(self) -> bool:
        """Whether an encoder and a decoder can be told apart."""
        return self.role in (Role.REFERENCE, Role.STREAM)

    def open(self) -> Backend:
        """Load it; an error says in one sentence why it cannot run here."""
        if self.device == "cuda" and not gpus():
            raise Unfit("no CUDA device")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ONNX Runtime's about providers, which we check
            return self.create()


def check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in CHOICES]
    if unknown or not names:
        raise MrcfaError(
            f"unknown backend {named(map(repr, unknown)) or 'none'}; choose from {named(CHOICES)}"
        )


def contenders(
    bundle: Bundle, names: Iterable[str], threads: int, peer: bool = True
) -> list[Contender]:
    """One for each backend, provider, precision and engine that the names stand for."""
    rows = [row for name in names for row in _contenders(bundle, name, threads)]
    if peer:
        devices = dict.fromkeys(["cpu", *(row.device for row in rows)])
        rows += [_peer(bundle, device, threads) for device in devices]
    return list({row.name: row for row in rows}.values())


def reference(bundle: Bundle, threads: int) -> Contender:
    return next(_contenders(bundle, "eager", threads))


def _contenders(bundle: Bundle, name: str, threads: int) -> Iterator[Contender]:
    kind, _, provider = name.partition(":")
    if kind == "eager-clip":
        yield Contender(name, Role.CLIP, "fp32", "cpu", partial(_eager_clip, bundle, threads))
    elif kind == "eager":
        opened = partial(open_backend, bundle, name, threads=threads)
        yield Contender(name, Role.REFERENCE, "fp32", "cpu", opened)
    elif kind == "onnxruntime":
        # TensorRT's provider compiles for minutes, so it runs only when it is named.
        for each in [provider] if provider else ["cpu", "cuda"]:
            device = "cpu" if each == "cpu" else "cuda"
            for precision in bundle.manifest.graphs:
                told = {"precision": precision, "threads": threads}
                opened = partial(open_backend, bundle, f"onnxruntime:{each}", **told)
                row = f"onnxruntime:{each} {precision}"
                yield Contender(row, Role.STREAM, precision, device, opened)
    else:
        for engine in bundle.manifest.engines:
            opened = partial(open_backend, bundle, f"tensorrt:{engine.name}")
            yield Contender(engine.name, Role.STREAM, engine.precision, "cuda", opened)
        if not bundle.manifest.engines:
            yield Contender(name, Role.STREAM, "fp16", "cpu", partial(_no_engine, bundle))


def _eager_clip(bundle: Bundle, threads: int) -> Backend:
    backend: Backend = load("benchmarks.eager_clip").EagerClip(bundle, threads)
    return backend


def _no_engine(bundle: Bundle) -> Backend:
    raise Unfit(f"the bundle has no engines; build them with: mrcfa build {bundle.path}")


def _peer(bundle: Bundle, device: str, threads: int) -> Contender:
    """In the precision that one deploys on that device."""
    precision = "fp32" if device == "cpu" else "fp16"
    name = f"segformer-{bundle.config.backbone.value} onnxruntime:{device} {precision}"
    opened = partial(_segformer, bundle, device, precision, threads)
    return Contender(name, Role.PEER, precision, device, opened)


def _segformer(bundle: Bundle, device: str, precision: str, threads: int) -> Backend:
    backend: Backend = load("benchmarks.peer").Peer(bundle, device, precision, threads)
    return backend
