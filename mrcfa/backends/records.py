"""Registry of backends, in `auto`'s order, and `Options`, what a stream may be told.

`open_backend`, `mrcfa bench`, `mrcfa doctor` and the help read them. A new backend is a module with
a class like `OnnxRuntimeBackend`, and a record here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

from mrcfa.backends.address import is_address
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device
from mrcfa.bundle.precisions import precision_named
from mrcfa.errors import InvalidValue


class ColdStart(str, Enum):
    """How the first frames are answered, while there are fewer frames than references."""

    STREAM = "stream"
    """With the frames there are, as the graphs do."""
    SINGLE = "single"
    """With the single-frame head, as the authors do for frames 0 to 2."""


@dataclass(frozen=True)
class Options:
    """What `Stream` may be told beyond bundle and backend, named as in C++'s `Options`."""

    precision: str | None = None
    """None takes fp32 on a CPU and fp16 on a GPU, where the bundle has it."""
    threads: int = 0
    """Of a CPU; 0 for all cores."""
    device: int | None = None
    """Index of the GPU; None takes that of the CUDA context that is current, or else the first."""
    cuda_graphs: bool = True
    """Launch each frame's kernels as CUDA graphs, which costs the CPU less."""
    device_masks: bool = False
    """Leave masks on the GPU, each until the stream's next frame overwrites it."""
    plugin_library: Path | None = None
    """libmrcfa_plugin.so; None takes the environment's MRCFA_PLUGIN_LIBRARY."""
    cold_start: ColdStart = ColdStart.STREAM
    strict: bool = False
    """Raise where a GPU would stay idle, instead of saying so and going on."""

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise InvalidValue(f"threads is {self.threads}; use 1 or more, or 0 for all cores")
        if self.device is not None and self.device < 0:
            raise InvalidValue(f"device is {self.device}; GPUs are counted from 0")

    @property
    def given(self) -> set[str]:
        """The options that are not as they are by default."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}


CHANGES_ANSWERS = {"precision", "device_masks", "cold_start"}
"""Options that `auto` looks for in a backend; the others are advice for those that have them."""


@dataclass(frozen=True)
class Way:
    """One way to run a bundle, as `mrcfa bench` measures it: a row of its own."""

    which: str
    """What follows the backend's colon."""
    name: str
    precision: str
    device: Device
    variant: str
    """The variant of the bundle whose limits hold."""


@dataclass(frozen=True)
class BackendRecord:
    name: str
    factory: str
    """`module:class`; the class takes (bundle, which, options)."""
    extra: str
    """What of this package's extras installs it."""
    packages: Mapping[str, tuple[str, ...]]
    """What must be importable -> the distributions that provide it."""
    enables: str
    """What it is good for, in words."""
    options: frozenset[str]
    """The fields of `Options` that it knows."""
    can_run: Callable[[Bundle], bool]
    """Whether `auto` should try it on a bundle."""
    ways: Callable[[Bundle, str], Iterator[Way]]
    """(bundle, which) -> the rows of a benchmark; an empty `which` stands for all usual ones."""
    choices: tuple[str, ...] = ()
    """What may follow the colon in the options of `bench`."""
    addressed: bool = False
    """Whether it is named by an address alone, `triton://HOST:PORT/MODEL`, and needs no bundle."""
    overlaps_frames: bool = False
    """As the class says of itself, so that `bench` knows without loading it."""


def _tensorrt_ways(bundle: Bundle, which: str) -> Iterator[Way]:
    for engine in bundle.manifest.engines:
        if which in ("", engine.name, engine.flavour):
            yield Way(engine.name, engine.name, engine.precision, Device.GPU, engine.variant)


def _onnxruntime_ways(bundle: Bundle, which: str) -> Iterator[Way]:
    """TensorRT's provider compiles for minutes, so it runs only when it is named."""
    precisions = dict.fromkeys(variant.precision for variant in bundle.manifest.variants.values())
    for provider in (which,) if which else ("cpu", "cuda"):
        device = Device.CPU if provider == "cpu" else Device.GPU
        for precision in precisions:
            variant = bundle.find_variant(device, precision)
            if variant is not None:
                name = f"onnxruntime:{provider} {precision}"
                if provider == "cpu" and precision_named(precision).emulated_on_cpus:
                    name += " (emulated)"  # no CPU computes in it
                yield Way(provider, name, precision, device, variant)


def _eager_ways(bundle: Bundle, which: str) -> Iterator[Way]:
    variant = bundle.find_variant(Device.CPU)
    assert variant is not None  # a CPU takes any, and no bundle has none
    yield Way("", "eager", "fp32", Device.CPU, variant)


def _triton_ways(bundle: Bundle, which: str) -> Iterator[Way]:
    """A server runs only when it is named; it says which variant it serves."""
    if which:
        from mrcfa.backends.triton import served_variant

        variant = served_variant(bundle, which)
        precision = bundle.manifest.variants[variant].precision
        yield Way(which, which, precision, Device.CPU, variant)  # nothing but a CPU is needed here


_RECORDS = (
    BackendRecord(
        name="tensorrt",
        factory="mrcfa.backends.tensorrt:TensorRTBackend",
        extra="rtx",
        packages={"cuda": ("cuda-python", "cuda-bindings")},
        enables="running TensorRT engines",
        options=frozenset(
            {"precision", "device", "cuda_graphs", "device_masks", "plugin_library", "strict"}
        ),
        can_run=lambda bundle: bool(bundle.manifest.engines),
        ways=_tensorrt_ways,
        choices=("tensorrt", "rtx"),
        overlaps_frames=True,
    ),
    BackendRecord(
        name="onnxruntime",
        factory="mrcfa.backends.onnxruntime:OnnxRuntimeBackend",
        extra="cpu",
        packages={"onnxruntime": ("onnxruntime", "onnxruntime-gpu")},
        enables="running bundles with ONNX Runtime",
        options=frozenset({"precision", "threads", "device", "strict"}),
        can_run=lambda bundle: True,
        ways=_onnxruntime_ways,
        choices=("cpu", "cuda", "tensorrt"),
    ),
    BackendRecord(
        name="eager",
        factory="mrcfa.backends.eager:EagerBackend",
        extra="export",
        packages={"torch": ("torch",), "safetensors": ("safetensors",)},
        enables="the reference model and mrcfa export",
        options=frozenset({"threads", "cold_start", "strict"}),
        can_run=lambda bundle: True,
        ways=_eager_ways,
    ),
    BackendRecord(
        name="triton",
        factory="mrcfa.backends.triton:TritonBackend",
        extra="triton",
        packages={"tritonclient": ("tritonclient",), "grpc": ("grpcio",)},
        enables="streams on an NVIDIA Triton server",
        options=frozenset({"strict"}),
        can_run=lambda bundle: False,
        ways=_triton_ways,
        addressed=True,
    ),
)
BACKENDS = {record.name: record for record in _RECORDS}
CHOICES = (
    "auto",
    *(
        f"{name}://HOST:PORT/MODEL" if record.addressed else name
        for name, record in BACKENDS.items()
    ),
)
"""What `--backend` may be, but for what follows a colon."""


def parts_of(name: str) -> tuple[str, str]:
    """`onnxruntime:cpu` -> the backend and what follows the colon; of an address, all of it."""
    if is_address(name):
        return "triton", name
    kind, _, which = name.partition(":")
    return kind, which


def full_name(kind: str, which: str) -> str:
    """What `parts_of` takes apart."""
    if not which or is_address(which):
        return which or kind
    return f"{kind}:{which}"
