"""The smallest trial of a runtime: a graph of one node, as bytes, so that `onnx` is not needed."""

ONE_NODE = (
    b'\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n'
    b"\x08\x08\x01\x12\x04\n\x02\x08\x02b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02B\x04\n\x00\x10\r"
)
"""An ONNX file that adds a vector of two numbers to itself: FP32 `x` -> `y`."""
FP16_NODE = ONE_NODE.replace(b"\x08\x01\x12\x04", b"\x08\x0a\x12\x04")
"""The same in FP16."""
