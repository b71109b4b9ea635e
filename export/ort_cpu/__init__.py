"""Graph rewrites that pay only in ONNX Runtime's CPU provider."""
