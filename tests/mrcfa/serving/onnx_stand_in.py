"""Stands in for Triton's ONNX Runtime backend as a `model.py` of its Python backend.

It runs a request at a time and keeps the state by correlation id, because that backend carries no
implicit state on. Scheduling, slots, controls, warm-up and ensembles are the server's own.
"""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as triton

from mrcfa.serving.python_model import _Shared

START = 1


class TritonPythonModel:
    def initialize(self, args):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session = ort.InferenceSession(str(path), options)
        self._inputs = [each.name for each in self._session.get_inputs()]
        self._outputs = [each.name for each in self._session.get_outputs()]
        self._states = {}

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        given = {each.name(): np.from_dlpack(each) for each in request.inputs()}
        number = request.correlation_id()
        if request.flags() & START:
            self._states[number] = {}
            zeros = [given[name] for name in ("memory", "frame") if name in given]
            assert not any(each.any() for each in zeros)
        given |= self._states.get(number, {})
        found = self._session.run(self._outputs, {name: given[name] for name in self._inputs})
        answer = dict(zip(self._outputs, found, strict=True))
        if number:  # Triton's rows without a frame have none
            self._states[number] = {
                name.removesuffix("_out"): answer[name] for name in answer if name.endswith("_out")
            }
        tensors = []
        for name in answer:
            if not name.endswith("_out"):
                shared = _Shared(answer[name])
                tensors.append(triton.Tensor.from_dlpack(name, shared))
                shared.taken()
        return triton.InferenceResponse(tensors)
