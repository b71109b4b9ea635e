"""8-bit precisions in ONNX: the scales and the constants of rounded tensors."""

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from mrcfa.bundle.precisions import EIGHT_BITS, EightBits
from mrcfa.errors import InvalidValue, named

Values = NDArray[np.float32]
SMALLEST_SCALE = np.float32(2.0**-20)
"""FP16 has four bits left there; what is smaller than 127 of it is next to nothing."""


class Format(EightBits):
    """The record of an 8-bit precision, and how ONNX stores its numbers."""

    @property
    def kind(self) -> int:
        """ONNX's number for the type."""
        return TensorProto.DataType.Value(self.onnx_type)

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


FORMATS = {name: Format(**vars(record)) for name, record in EIGHT_BITS.items()}


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise InvalidValue(f"unknown precision {name!r}; quantize to {named(FORMATS)}")
    return FORMATS[name]
