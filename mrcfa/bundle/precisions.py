"""The precisions of variants: one record each, with every fact that the code asks about.

Light on purpose: the command line reads it for its help. `export/variants.py` has the graphs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mrcfa.bundle.manifest import Device


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A number format in which the graphs of a variant compute."""

    name: str
    dtype: str
    """The type of the tensors between both graphs, as NumPy and PyTorch name it."""
    variants: Mapping[Device, str]
    """The names of its variants by the kind of device that they are laid out for."""
    preferred_on: Device | None = None
    """The kind of device that runs this precision if the user names none."""
    first_sm: int = 0
    """The oldest compute capability whose tensor cores have this format."""
    first_rtx_sm: int = 0
    """The oldest compute capability for which TensorRT-RTX has matrix products in this format."""
    emulated_on_cpus: bool = False
    """True if no CPU computes in this format, so its speed on a CPU says nothing."""

    def variant_for(self, device: Device) -> str:
        """The variant to export for a kind of device. A CPU also runs the one for GPUs."""
        return self.variants.get(device, self.name)


@dataclass(frozen=True, kw_only=True)
class EightBits(Precision):
    """A format of 8 bits: `mrcfa quantize` rounds parts of an FP16 variant to it, using data."""

    dtype: str = "float16"
    gpus: str
    """The GPUs that have the format, in words."""
    onnx_type: str
    """The name of the format in ONNX's `TensorProto`."""
    tensorrt_type: str
    """The name of the format in TensorRT's list of an engine's layers."""
    largest: float
    """The largest number of the format."""
    calibration: str
    """The default method that finds the range of a tensor."""
    most_taps: float = math.inf
    """The largest kernel, height times width, of a conv that TensorRT computes in 8 bits."""
    most_keys: float = math.inf
    """The most keys of an attention that TensorRT fuses in 8 bits. Without fusion its scores leave
    the chip, which costs more than 8 bits save, so both products of a larger one stay FP16."""


_RECORDS: tuple[Precision, ...] = (
    Precision(
        name="fp32",
        dtype="float32",
        variants={Device.CPU: "fp32", Device.GPU: "fp32-gpu"},
        preferred_on=Device.CPU,
        first_rtx_sm=80,
    ),
    Precision(
        name="fp16",
        dtype="float16",
        variants={Device.GPU: "fp16"},
        preferred_on=Device.GPU,
    ),
    EightBits(
        name="int8",
        variants={Device.GPU: "int8"},
        first_sm=75,
        gpus="Turing and later",
        onnx_type="INT8",
        tensorrt_type="Int8",
        largest=127.0,
        calibration="percentile",
        most_keys=512,
    ),
    EightBits(
        name="fp8",
        variants={Device.GPU: "fp8"},
        first_sm=89,
        emulated_on_cpus=True,
        gpus="Ada and later",
        onnx_type="FLOAT8E4M3FN",
        tensorrt_type="FP8",
        largest=448.0,
        calibration="minmax",
        most_taps=32,
    ),
)
PRECISIONS = {record.name: record for record in _RECORDS}
EIGHT_BITS = {record.name: record for record in _RECORDS if isinstance(record, EightBits)}
PREFERRED = {record.preferred_on: record.name for record in _RECORDS if record.preferred_on}
"""The precision that each kind of device runs if the user names none."""
EXPORTED = {
    device: tuple(
        record.variants[device]
        for record in _RECORDS
        if device in record.variants and record.name not in EIGHT_BITS
    )
    for device in Device
}
"""The variants that `mrcfa export` writes for each kind of device; quantize makes the others."""


def precision_named(name: str) -> Precision:
    """The record of a precision; for a name from a later mrcfa, one without special facts."""
    later = Precision(name=name, dtype="float16", variants={Device.GPU: name})
    return PRECISIONS.get(name, later)
