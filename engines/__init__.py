"""ONNX bundle -> TensorRT engines."""
