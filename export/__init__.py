"""Reference model -> encoder and decoder graphs -> ONNX bundle."""

import mrcfa  # noqa: F401  # before onnxruntime loads, whose telemetry it switches off
