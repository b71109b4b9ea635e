"""Both graphs of a variant in ONNX Runtime on the CPU, frame by frame, with any inner tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray
from onnx_ir.convenience import create_value_mapping

from mrcfa.bundle.manifest import STATE

Arrays = dict[str, NDArray[Any]]
Image = NDArray[np.uint8]


class GraphSession:
    """One graph, which returns the tensors named in `seen` beside its outputs."""

    def __init__(self, model: onnx.ModelProto, seen: Sequence[str] = (), threads: int = 0) -> None:
        shown = ir.from_proto(model)
        values = create_value_mapping(shown.graph)
        self._fed = [name for name in seen if values[name].is_graph_input()]
        ends = {*shown.graph.inputs, *shown.graph.outputs}
        shown.graph.outputs.extend(values[name] for name in seen if values[name] not in ends)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.disable_quant_qdq", "1")  # as the backend does
        self._session = ort.InferenceSession(
            ir.to_proto(shown).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._names = [value.name for value in self._session.get_outputs()]
        self.inputs = {
            value.name: np.zeros(value.shape, _NUMPY[value.type])
            for value in self._session.get_inputs()
        }

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        fed = {name: inputs[name] for name in self.inputs}
        outputs = dict(zip(self._names, self._session.run(None, fed), strict=True))
        return outputs | {name: fed[name] for name in self._fed}


class Pair:
    """Encoder, decoder and state; every row of graphs for several streams gets the same frames."""

    def __init__(self, encoder: GraphSession, decoder: GraphSession) -> None:
        self._encoder, self._decoder = encoder, decoder
        self.reset()

    def reset(self) -> None:
        self._state = {name: zeros for name, zeros in self._decoder.inputs.items() if name in STATE}

    def encode(self, image: Image) -> Arrays:
        streams = len(self._encoder.inputs["image"])
        return self._encoder.run({"image": np.repeat(image[None], streams, axis=0)})

    def decode(self, features: Mapping[str, NDArray[Any]]) -> Arrays:
        outputs = self._decoder.run({**features, **self._state})
        self._state = {name: outputs[f"{name}_out"] for name in self._state}
        return outputs

    def skip(self, features: Mapping[str, NDArray[Any]]) -> None:
        """Change the state as the decoder would, without running it."""
        if "memory" in self._state:
            entry = features["entry"][:, None]
            memory = np.concatenate([self._state["memory"][:, 1:], entry], axis=1)
            self._state["memory"] = memory
        self._state["frame"] = self._state["frame"] + 1


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
}
