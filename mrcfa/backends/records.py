"""The registry of backends, one record each, and `Options`, the settings of a stream.

`open_backend`, `mrcfa bench`, `selftest`, `doctor` and the help read the records. A new backend is
a module with a class like `OnnxRuntimeBackend`, a record here, and an extra in pyproject.toml.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.manifest import Device, Engine
from mrcfa.bundle.precisions import precision_named
from mrcfa.errors import InvalidValue, named
from mrcfa.machine.vulkan import NO_VULKAN, vulkan_devices


class ColdStart(str, Enum):
    """The way to answer the first frames, while there are fewer frames than references."""

    STREAM = "stream"
    """Use the frames that exist, as the graphs do."""
    SINGLE = "single"
    """Use the single-frame head, as the authors do for frames 0 to 2."""


@dataclass(frozen=True)
class Options:
    """The options of `Stream` besides bundle and backend, with the names of C++'s `Options`."""

    precision: str | None = None
    """None takes fp32 on a CPU and fp16 on a GPU, if the bundle has it."""
    threads: int = 0
    """Threads on a CPU; 0 for all cores."""
    device: int | None = None
    """Index of the GPU; None takes the GPU of the current CUDA context, else the first one."""
    cuda_graphs: bool = True
    """Launch the kernels of each frame as CUDA graphs, which costs less time on the CPU."""
    device_masks: bool = False
    """Leave masks on the GPU; the next frame of the stream overwrites the mask."""
    plugin_library: Path | None = None
    """libmrcfa_plugin.so; None takes the path in MRCFA_PLUGIN_LIBRARY."""
    cold_start: ColdStart = ColdStart.STREAM
    strict: bool = False
    """Raise an error, instead of printing a warning, if a GPU would stay idle."""

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise InvalidValue(f"threads is {self.threads}; use 1 or more, or 0 for all cores")
        if self.device is not None and self.device < 0:
            raise InvalidValue(f"device is {self.device}; GPUs are counted from 0")

    @property
    def given(self) -> set[str]:
        """The names of the options that differ from their defaults."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}


CHANGES_ANSWERS = {"precision", "device_masks", "cold_start"}
"""Options that a backend must have for `auto` to take it; it may ignore the other ones."""


@dataclass(frozen=True)
class Place:
    """A device that a backend can be asked for, such as `cpu` in `onnxruntime:cpu`."""

    name: str
    device: Device
    """The kind of device. It runs only variants that are laid out for this kind, with one
    exception: a CPU also runs variants for GPUs."""
    runtime_name: str = ""
    """The runtime's own name for this device."""
    title: str = ""
    """`shown`, if that is not the name in capitals."""
    memory: str = "cpu"
    """The runtime's name for the memory of its tensors."""
    library: str = ""
    """The module that brings the runtime's library for this device; empty if it needs none."""
    precisions: tuple[str, ...] = ()
    """The precisions in which it computes; empty for all."""
    extra: str = ""
    """The extra that installs it, if that is not the backend's."""
    cuda: bool = False
    """True if it needs an NVIDIA GPU."""
    usual: bool = True
    """True if `mrcfa bench` and `mrcfa selftest` measure it unless told otherwise."""
    vulkan: bool = False
    """True if it computes on a Vulkan device, on systems where WebGPU does."""

    @property
    def shown(self) -> str:
        """The device in the names of backends."""
        return self.title or self.name.upper()

    def computes(self, precision: str) -> bool:
        """True if it computes in this precision."""
        return not self.precisions or precision in self.precisions


@dataclass(frozen=True)
class Way:
    """One way to run a bundle: a row of `mrcfa bench` and of `mrcfa selftest`."""

    which: str
    """The text after the backend's colon."""
    name: str
    precision: str
    device: Device
    """The kind of device on this machine that computes."""
    variant: str
    """The variant of the bundle whose limits hold."""
    cuda: bool = False
    """True if it needs an NVIDIA GPU."""
    absent: str = ""
    """Why this machine cannot run it; empty if nothing is known before it is opened."""
    engine: Engine | None = None


def graph_ways(record: "BackendRecord", bundle: Bundle, which: str) -> Iterator[Way]:
    """One row for each place and each precision that the bundle has for this kind of device."""
    precisions = dict.fromkeys(variant.precision for variant in bundle.manifest.variants.values())
    usual = (place for place in record.places if place.usual)
    for place in (record.place(which),) if which else usual:
        adapters = vulkan_devices() if place.vulkan else None
        absent = NO_VULKAN if adapters == [] else ""
        for precision in filter(place.computes, precisions):
            variant = bundle.find_variant(place.device, precision)
            if variant is None:
                continue
            name = f"{record.name}:{place.name} {precision}"
            if place.device is Device.CPU and precision_named(precision).emulated_on_cpus:
                name += " (emulated)"
            if adapters and adapters[0].software:
                name += " (software)"
            yield Way(place.name, name, precision, place.device, variant, place.cuda, absent)


@dataclass(frozen=True)
class BackendRecord:
    """All facts about a backend that the rest of the code asks about."""

    name: str
    factory: str
    """`module:class`; the class takes (bundle, which, options)."""
    extra: str
    """The extra of this package that installs it."""
    packages: Mapping[str, tuple[str, ...]]
    """Module to import -> the pip packages that provide it."""
    enables: str
    """Its use in words, for `mrcfa doctor`."""
    options: frozenset[str]
    """The fields of `Options` that it takes."""
    places: tuple[Place, ...] = ()
    """The devices that may be named after the colon."""
    schemes: tuple[str, ...] = ()
    """The schemes of its addresses. A backend with schemes is a server: it is chosen by an address
    such as `triton://HOST:PORT/MODEL` alone, and needs no bundle."""
    overlaps_frames: bool = False
    """The class's `overlaps_frames`, which `mrcfa bench` reads before the class is loaded."""
    auto: Callable[[Bundle], bool] = lambda bundle: True
    """True if `auto` tries it on this bundle. The order is that of `BACKENDS`."""
    rows: Callable[["BackendRecord", Bundle, str], Iterator[Way]] = graph_ways
    """The function behind `ways`."""

    @property
    def usage(self) -> str:
        """The form in which users choose it."""
        return f"{self.schemes[0]}://HOST:PORT/MODEL" if self.schemes else self.name

    def place(self, name: str) -> Place:
        """The place of this name, or an error that lists all."""
        for place in self.places:
            if place.name == name:
                return place
        choices = named(f"{self.name}:{place.name}" for place in self.places)
        raise InvalidValue(f"unknown backend {self.name}:{name}; choose one of {choices}")

    def ways(self, bundle: Bundle, which: str = "") -> Iterator[Way]:
        """The rows of a benchmark; an empty `which` stands for all usual ones."""
        return self.rows(self, bundle, which)


def _engine_ways(record: BackendRecord, bundle: Bundle, which: str) -> Iterator[Way]:
    for engine in bundle.manifest.engines:
        if which in ("", engine.name, engine.flavour):
            yield Way(
                which=engine.name,
                name=engine.name,
                precision=engine.precision,
                device=Device.GPU,
                variant=engine.variant,
                cuda=True,
                engine=engine,
            )


def _eager_ways(record: BackendRecord, bundle: Bundle, which: str) -> Iterator[Way]:
    variant = bundle.find_variant(Device.CPU)
    assert variant is not None  # a CPU runs any variant, and every bundle has one
    yield Way("", record.name, "fp32", Device.CPU, variant)


def _triton_ways(record: BackendRecord, bundle: Bundle, which: str) -> Iterator[Way]:
    """One row for the server at an address, and none without an address."""
    if which:
        from mrcfa.backends.triton import served_variant

        variant = served_variant(bundle, which)
        precision = bundle.manifest.variants[variant].precision
        yield Way(which, which, precision, Device.CPU, variant)  # the client needs a CPU alone


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
        places=(
            Place("tensorrt", Device.GPU, cuda=True),
            Place("rtx", Device.GPU, cuda=True),
        ),
        overlaps_frames=True,
        auto=lambda bundle: bool(bundle.manifest.engines),
        rows=_engine_ways,
    ),
    BackendRecord(
        name="onnxruntime",
        factory="mrcfa.backends.onnxruntime:OnnxRuntimeBackend",
        extra="cpu",
        packages={"onnxruntime": ("onnxruntime", "onnxruntime-gpu")},
        enables="running bundles with ONNX Runtime",
        options=frozenset({"precision", "threads", "device", "strict"}),
        places=(
            Place("cpu", Device.CPU, "CPUExecutionProvider"),
            Place(
                "cuda",
                Device.GPU,
                "CUDAExecutionProvider",
                memory="cuda",
                extra="gpu",
                cuda=True,
            ),
            # It compiles for minutes at the first start, so it runs only if it is named.
            Place(
                "tensorrt",
                Device.GPU,
                "TensorrtExecutionProvider",
                memory="cuda",
                extra="gpu",
                cuda=True,
                usual=False,
            ),
            Place(
                "webgpu",
                Device.GPU,
                "WebGpuExecutionProvider",
                title="WebGPU",
                memory="webgpu",
                library="onnxruntime_ep_webgpu",
                precisions=("fp32", "fp16"),
                extra="webgpu",
                vulkan=True,
            ),
        ),
    ),
    BackendRecord(
        name="eager",
        factory="mrcfa.backends.eager:EagerBackend",
        extra="export",
        packages={"torch": ("torch",), "safetensors": ("safetensors",)},
        enables="the reference model and mrcfa export",
        options=frozenset({"threads", "cold_start", "strict"}),
        rows=_eager_ways,
    ),
    BackendRecord(
        name="triton",
        factory="mrcfa.backends.triton:TritonBackend",
        extra="triton",
        packages={"tritonclient": ("tritonclient",), "grpc": ("grpcio",)},
        enables="streams on an NVIDIA Triton server",
        options=frozenset({"strict"}),
        schemes=("triton", "tritons"),
        auto=lambda bundle: False,
        rows=_triton_ways,
    ),
)
BACKENDS = {record.name: record for record in _RECORDS}
CHOICES = ("auto", *(record.usage for record in BACKENDS.values()))
"""The values of `--backend`, without what may follow a colon."""


def server_at(place: str | Path) -> BackendRecord | None:
    """The backend whose address this is, or None for a folder or a backend's name.

    A `Path` turns two slashes into one, so any number of slashes is accepted.
    """
    scheme, _, rest = str(place).partition(":")
    servers = (record for record in BACKENDS.values() if scheme in record.schemes)
    return next(servers, None) if rest.strip("/") else None


def is_address(place: str | Path) -> bool:
    """True for the address of a server, such as `triton://HOST:PORT/MODEL`."""
    return server_at(place) is not None


def check_order(verb: str, bundle: str | Path, inputs: Sequence[str | Path]) -> None:
    """Raise an error if the bundle is among the inputs and the first argument is not a bundle."""
    swapped = next((each for each in inputs if _is_bundle(each)), None)
    if swapped is not None and not _is_bundle(bundle):
        raise InvalidValue(
            f"{swapped} is a bundle and {bundle} is not; the bundle comes first: "
            f"mrcfa {verb} {swapped} {bundle}"
        )


def _is_bundle(place: str | Path) -> bool:
    return is_address(place) or (Path(place) / MANIFEST).is_file()


def parts_of(name: str) -> tuple[str, str]:
    """`onnxruntime:cpu` -> (`onnxruntime`, `cpu`); an address -> (`triton`, the whole address)."""
    server = server_at(name)
    if server is not None:
        return server.name, name
    kind, _, which = name.partition(":")
    return kind, which


def full_name(kind: str, which: str) -> str:
    """The inverse of `parts_of`."""
    if not which or is_address(which):
        return which or kind
    return f"{kind}:{which}"
