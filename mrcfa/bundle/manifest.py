"""`manifest.json`: the description of a bundle. docs/bundle.md is the specification."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from mrcfa import bounds
from mrcfa.data.decoding import Damage, at_most, document, from_json, in_range, text_of
from mrcfa.data.labels import Colour
from mrcfa.errors import Damaged, Unsupported
from mrcfa.model.config import Config
from mrcfa.model.input_format import RGB, InputFormat

FORMAT = 2
STATE = ("memory", "frame")
"""The decoder's state: its inputs of these names and its outputs with `_out` appended.

A model without memory has only `frame`."""


class Device(str, Enum):
    """The kind of device that a variant's graphs are laid out for."""

    CPU = "cpu"
    GPU = "gpu"


class Output(str, Enum):
    """The decoder's result."""

    MASK = "mask"
    LOGITS = "logits"


DTYPES = ("float32", "float16", "int32", "uint8")
"""Types of the graphs' inputs and outputs."""


@dataclass(frozen=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise Damage(f"{self.name} has the unknown type {self.dtype!r}")
        at_most("shape", len(self.shape), bounds.AXES)
        room = bounds.ELEMENTS
        for length in self.shape:
            in_range("shape", length, 1, room)
            room //= length


@dataclass(frozen=True)
class Graph:
    """One ONNX file and its tensors; `wide` names its FP32 nodes if the others are narrower."""

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int = 0
    wide: tuple[str, ...] = ()
    activation_bytes: int | None = None
    """Peak memory in a runtime that fuses no nodes; for engines see `PlanCost`."""

    def __post_init__(self) -> None:
        for end, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            at_most(end, len(specs), bounds.TENSORS)


@dataclass(frozen=True)
class Cost:
    """Cost of one part of the model per frame: multiply-adds, and bytes read and written.

    With several streams a frame has its share of what all cost together.
    """

    graph: str
    stage: str
    multiply_adds: int
    bytes_moved: int


@dataclass(frozen=True)
class Limits:
    """Largest allowed differences between a variant and the reference model.

    Logit errors are shares of the logits' range.
    """

    largest_error: float
    mean_error: float
    agreement: float
    """Smallest share of pixels with the same class."""
    mean_iou: float
    worst_iou: float
    """Smallest IoU of a single class."""


@dataclass(frozen=True)
class Quantization:
    """How an 8-bit variant was made, and what it costs."""

    method: str
    """Method of calibration."""
    data: str
    frames: int
    measure: str
    """The loss is in points of `mIoU`, or of `agreement` with the reference's masks."""
    loss: float
    allowed_loss: float
    blocks: tuple[str, ...]
    """Blocks in 8 bits, the least sensitive first."""
    fp16: tuple[str, ...]
    """Blocks that were left in FP16."""
    sensitivity: Mapping[str, float]
    """Mean error of logits, as a share of their range, with one block alone in 8 bits."""
    curve: tuple[tuple[int, float], ...]
    """Measured pairs of the number of blocks in 8 bits and the loss."""
    shares: Mapping[str, float]
    """Shares of 8-bit multiply-adds: `encoder`, its products with `weights`, `decoder`."""

    def __post_init__(self) -> None:
        for part in ("encoder", "weights", "decoder"):
            if part not in self.shares:
                raise Damage(f"shares lacks '{part}'")


@dataclass(frozen=True)
class Variant:
    """One pair of graphs: a precision, laid out for a device, with cost and parity."""

    precision: str
    device: Device
    arrangement: str
    """Name of the exporter's arrangement that laid the graphs out."""
    limits: Limits
    encoder: Graph
    decoder: Graph
    note: str = ""
    """A remark for people, such as the number of groups of tokens."""
    cost: tuple[Cost, ...] = ()
    parity: tuple[Mapping[str, Any], ...] = ()
    """The checks that the export passed."""
    quantization: Quantization | None = None
    """None for a variant that is not in 8 bits."""

    @property
    def graphs(self) -> dict[str, Graph]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    @property
    def streams(self) -> int:
        return self.encoder.inputs[0].shape[0]

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs and outputs of both graphs."""
        graphs = self.graphs.values()
        return tuple(spec for graph in graphs for spec in (*graph.inputs, *graph.outputs))


@dataclass(frozen=True)
class PlanCost:
    """One compiled graph: number of kernels, and bytes that they move per frame."""

    kernels: int
    bytes_written: int
    bytes_read: int
    activation_bytes: int | None = None
    """Device memory of one execution context."""
    weights_bytes: int | None = None


class ChosenBy(str, Enum):
    """Grounds on which `build` chooses among the forms of a graph."""

    TIME = "time"
    """The forms were timed on the target's GPU."""
    COST = "cost"
    """Estimates from the bytes that the forms move and their numbers of kernels."""
    ORDER = "order"
    """Nothing was known of any form, so the first was taken."""
    ONLY = "only"
    """No other form could be built."""


@dataclass(frozen=True)
class FormChoice:
    """The form of a graph that a plan was compiled from. All forms compute the same."""

    form: str
    chosen_by: str
    """A value of `ChosenBy`."""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """Time per frame of each form that it is known of, measured or estimated."""

    def __str__(self) -> str:
        if not self.milliseconds:
            return f"{self.form} ({self.chosen_by})"
        times = (f"{form} {time:.3f} ms" for form, time in self.milliseconds.items())
        return f"{self.form}, by {self.chosen_by} per frame: {', '.join(times)}"


@dataclass(frozen=True)
class Engine:
    """Two TensorRT plans and what they were built for."""

    flavour: str
    tensorrt: str
    compute_capabilities: tuple[int, ...]
    precision: str
    variant: str
    """Name of the variant that it was built from."""
    plugin: str | None
    encoder: str
    decoder: str
    layers: str | None = None
    version_compatible: bool = False
    """True if other versions of the same major TensorRT load it as well."""
    costs: Mapping[str, PlanCost] = field(default_factory=dict)
    """Costs of `encoder` and `decoder`, where TensorRT lists its layers."""
    forms: Mapping[str, FormChoice] = field(default_factory=dict)
    """The forms that `encoder` and `decoder` were compiled from."""
    gpu: str | None = None
    """Name of the GPU that TensorRT chose kernels on; None if it chose them for any of an SM."""

    def __post_init__(self) -> None:
        for capability in self.compute_capabilities:
            in_range("compute_capabilities", capability, 0, 9999)

    @property
    def name(self) -> str:
        return f"{self.flavour} {self.precision} " + "+".join(
            f"sm{sm}" for sm in self.compute_capabilities
        )


@dataclass(frozen=True)
class Weights:
    origin: str
    """Name of the checkpoint, or how the weights were made."""
    sha256: str | None
    random: bool
    """True for untrained weights, whose masks are meaningless."""


@dataclass(frozen=True)
class FileEntry:
    sha256: str
    bytes: int

    def __post_init__(self) -> None:
        in_range("bytes", self.bytes, 0, 2**63 - 1)


@dataclass(frozen=True)
class Manifest:
    mrcfa: str
    """Version of mrcfa that exported the bundle."""
    config: Config
    streams: int
    """B, the length of every tensor's first axis."""
    frame: tuple[int, int]
    """Height and width of the frames that the graphs take."""
    output: Output
    variants: Mapping[str, Variant]
    classes: tuple[str, ...]
    palette: tuple[Colour, ...]
    preprocessing: Mapping[str, Any]
    weights: Weights
    files: Mapping[str, FileEntry]
    tools: Mapping[str, str]
    engines: tuple[Engine, ...]
    input: InputFormat = RGB
    """How the pixels of a frame lie in memory."""

    def __post_init__(self) -> None:
        in_range("streams", self.streams, 1, bounds.STREAMS)
        for side in self.frame:
            in_range("frame", side, 1, bounds.SIDE)
        self.input.check(self.frame)
        for level in (level for colour in self.palette for level in colour):
            in_range("palette", level, 0, 255)
        at_most("files", len(self.files), bounds.FILES)
        at_most("engines", len(self.engines), bounds.ENGINES)
        at_most("variants", len(self.variants), bounds.VARIANTS)
        if not self.variants:
            raise Damage("variants is empty")
        for named, count in (("classes", len(self.classes)), ("palette", len(self.palette))):
            if count != self.config.classes:
                raise Damage(f"{named} has {count} entries for {self.config.classes} classes")
        for name, variant in sorted(self.variants.items()):
            self._check_tensors(name, variant)
        for engine in self.engines:
            if engine.variant not in self.variants:
                raise Damage(f"an engine is of the variant {engine.variant!r}, which is not there")

    def _check_tensors(self, name: str, variant: Variant) -> None:
        """Raise `Damage` for graphs that contradict the frame size, each other or the state."""
        for spec in variant.tensors:
            if spec.shape[:1] != (self.streams,):
                raise Damage(f"the first axis of {spec.name} is not {self.streams}, the streams")
        encoder, decoder = variant.encoder, variant.decoder
        state = [_end(spec) for spec in decoder.inputs if spec.name == "memory"]
        state.append(("frame", "int32", (self.streams,)))
        fed_back = [(f"{part}_out", dtype, shape) for part, dtype, shape in state]
        image = ("image", "uint8", (self.streams, *self.input.shape(self.frame)))
        features = [_end(spec) for spec in encoder.outputs]
        _check_ends(f"{name}'s encoder takes", encoder.inputs, [image])
        _check_ends(f"{name}'s decoder takes", decoder.inputs, [*features, *state])
        answer = self._answer(decoder.outputs)
        _check_ends(f"{name}'s decoder gives", decoder.outputs, [answer, *fed_back])

    def _answer(self, outputs: tuple[TensorSpec, ...]) -> "_End":
        """A mask of the frame's size, or logits of any floating-point type and size."""
        if self.output is Output.MASK:
            return "mask", "uint8", (self.streams, *self.frame)
        for spec in outputs:
            if spec.name == "logits" and spec.dtype.startswith("float") and len(spec.shape) == 4:
                return "logits", spec.dtype, (*spec.shape[:1], self.config.classes, *spec.shape[2:])
        return "logits", "float32", (self.streams, self.config.classes, 1, 1)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        try:
            return cls.from_json(text_of(path, bounds.MANIFEST_BYTES), path)
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error}") from None
        except ValueError as error:
            raise _damaged(path, error) from None

    @classmethod
    def from_json(cls, text: str, path: Path) -> "Manifest":
        """Parse a manifest; every mistake in the text is an error that names the file."""
        try:
            content = document(text)
            _check_format(content, path)
            return from_json(cls, content)
        except ValueError as error:
            raise _damaged(path, error) from None


def _damaged(path: Path, error: ValueError) -> Damaged:
    return Damaged(f"{path} is damaged ({error}); export the bundle anew")


_End = tuple[str, str, tuple[int, ...]]
"""Required name, type and shape of a tensor."""


def _end(spec: TensorSpec) -> _End:
    return spec.name, spec.dtype, spec.shape


def _check_ends(place: str, found: tuple[TensorSpec, ...], wanted: list[_End]) -> None:
    specs = {spec.name: spec for spec in found}
    if len(specs) < len(found):
        raise Damage(f"{place} two tensors of the same name")
    for name, dtype, shape in wanted:
        spec = specs.pop(name, None)
        if spec is None:
            raise Damage(f"{place} no {name!r}")
        if (spec.dtype, spec.shape) != (dtype, shape):
            raise Damage(
                f"{place} {name!r} as {spec.dtype} {list(spec.shape)}, not {dtype} {list(shape)}"
            )
    for name in specs:
        raise Damage(f"{place} {name!r}, which is not part of the protocol")


def _check_format(content: Any, path: Path) -> None:
    if not isinstance(content, dict):
        raise Damage("there is no object that could hold 'format'")
    if "format" not in content:
        raise Damage("it lacks 'format'")
    version = content["format"]
    if version == FORMAT and isinstance(version, int):
        return
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        fault = f"{version!r}, which this mrcfa does not read; export it again"
    elif version > FORMAT:
        fault = f"{version}, newer than this mrcfa reads ({FORMAT}); update mrcfa"
    else:
        fault = f"{version}, older than this mrcfa reads ({FORMAT}); export it again"
    raise Unsupported(f"{path} has format {fault}")
