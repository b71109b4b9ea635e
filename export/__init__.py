"""Reference model -> encoder and decoder graphs -> ONNX bundle."""
