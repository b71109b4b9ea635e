"""Attention in slices: the same encoder, fewer scores at once."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from mrcfa.export.slices import attention_in_slices


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
    whole = attention_in_slices(model)
    assert [node.name for node in whole.graph.node] == [node.name for node in model.graph.node]


def test_an_attention_in_8_bits_is_sliced_with_its_roundings():
    """Softmax → Q → DQ → product, as `mrcfa quantize` writes it."""
    rng = np.random.default_rng(0)
    shapes = {"q": [1, 2, 60, 8], "k": [1, 2, 8, 40], "v": [1, 2, 40, 8]}
    facts = ["scale", "zero"]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["q", "k"], ["scores"], name="scores"),
            helper.make_node("Softmax", ["scores"], ["weights"], name="softmax", axis=-1),
            helper.make_node("QuantizeLinear", ["weights", *facts], ["narrow"], name="narrow"),
            helper.make_node("DequantizeLinear", ["narrow", *facts], ["wide"], name="wide"),
            helper.make_node("MatMul", ["wide", "v"], ["mixed"], name="mixed"),
        ],
        "attention",
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, shapes[each]) for each in shapes],
        [helper.make_tensor_value_info("mixed", TensorProto.FLOAT, [1, 2, 60, 8])],
        [
            numpy_helper.from_array(np.float32(1 / 127), "scale"),
            helper.make_tensor("zero", TensorProto.INT8, [], [0]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    sliced = attention_in_slices(model, 1000)
    assert sum(node.op_type == "QuantizeLinear" for node in sliced.graph.node) == 5
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    whole, parts = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (model, sliced)
    )
    np.testing.assert_allclose(whole.run(None, inputs)[0], parts.run(None, inputs)[0], atol=1e-6)
