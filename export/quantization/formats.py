"""The two 8-bit formats: what their numbers are, and which products GPUs compute in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from mrcfa.errors import InvalidValue, named

Values = NDArray[np.float32]
SMALLEST_SCALE = np.float32(2.0**-20)
"""FP16 has four bits left there; what is smaller than 127 of it is next to nothing."""


@dataclass(frozen=True)
class Format:
    name: str
    kind: int
    """ONNX's type."""
    largest: float
    method: str
    """Of calibration, unless told otherwise."""
    most_taps: float
    """Of a conv that TensorRT computes in this format."""
    most_keys: float
    """Of an attention that TensorRT fuses in this format. Scores that leave the chip cost more than
    they save, so that the two products of an attention with more keys stay FP16."""

    def scale(self, largest: Values) -> NDArray[np.float16]:
        """FP16 scales under which numbers up to `largest` fit."""
        return np.maximum(largest / self.largest, SMALLEST_SCALE).astype(np.float16)

    def tensor(self, name: str, values: Values) -> TensorProto:
        """Scaled values as a constant, rounded to the nearest."""
        values = np.clip(values, -self.largest, self.largest)
        if self.kind == TensorProto.INT8:
            values = np.rint(values)
        narrow = values.astype(helper.tensor_dtype_to_np_dtype(self.kind))
        return helper.make_tensor(name, self.kind, values.shape, narrow.tobytes(), raw=True)


_FORMATS = (
    Format("int8", TensorProto.INT8, 127.0, "percentile", np.inf, most_keys=512),
    Format("fp8", TensorProto.FLOAT8E4M3FN, 448.0, "minmax", 32, most_keys=np.inf),
)
FORMATS = {each.name: each for each in _FORMATS}


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise InvalidValue(f"unknown precision {name!r}; quantize to {named(FORMATS)}")
    return FORMATS[name]
