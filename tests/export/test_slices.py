"""Attention in slices: the same encoder, fewer scores at once."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from export.slices import attention_in_slices


@pytest.mark.parametrize("scores", [5000, 700])
def test_an_encoder_whose_attention_is_sliced_is_the_encoder(bundle, clip, scores):
    model = onnx.load(bundle("b0") / "encoder.fp16.onnx")
    sliced = attention_in_slices(model, scores)
    assert len(sliced.graph.node) > len(model.graph.node)
    shapes = onnx.shape_inference.infer_shapes(sliced, check_type=True)
    softmaxes = {node.output[0] for node in sliced.graph.node if node.op_type == "Softmax"}
    for value in shapes.graph.value_info:
        if value.name in softmaxes:
            sides = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            assert np.prod(sides) <= scores * 1.1  # a slice has one query more than another
    image = {"image": clip(1, 96, 160)}
    whole, parts = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (model, sliced)
    )
    for one, other in zip(whole.run(None, image), parts.run(None, image), strict=True):
        np.testing.assert_allclose(one, other, atol=5e-3)


def test_a_small_attention_stays_whole(bundle):
    model = onnx.load(bundle("b0") / "encoder.fp16.onnx")
    assert attention_in_slices(model) == model
