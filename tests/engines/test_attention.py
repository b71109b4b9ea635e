"""INT8 attention: in FP16 where no kernel fuses it, on Turing."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_bundle import build

from mrcfa.engines.attention import has_narrow_attention, with_fp16_attention

HEADS = 4


def attention(keys, tokens=40, narrow=True):
    """(1, 4, n, 64) tokens, (1, 4, keys, 64) keys and values -> (1, 4, n, 64), doubled."""
    nodes, constants = [], [numpy_helper.from_array(np.float16(0.05), "scale")]
    constants.append(helper.make_tensor("zero", TensorProto.INT8, [], [0]))
    constants.append(numpy_helper.from_array(np.float16(2), "two"))

    def rounded(name):
        if not narrow:
            return name
        facts = ["scale", "zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *facts], [f"{name}_8"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_8", *facts], [f"{name}_16"]))
        return f"{name}_16"

    nodes.append(helper.make_node("Transpose", ["keys"], ["columns"], perm=[0, 1, 3, 2]))
    nodes.append(helper.make_node("MatMul", [rounded("tokens"), rounded("columns")], ["scores"]))
    nodes.append(helper.make_node("Softmax", ["scores"], ["weights"], axis=-1))
    nodes.append(helper.make_node("MatMul", [rounded("weights"), rounded("values")], ["mixed"]))
    nodes.append(helper.make_node("Mul", [rounded("mixed"), "two"], ["answer"]))
    shapes = {"tokens": tokens, "keys": keys, "values": keys}
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, HEADS, count, 64])
            for name, count in shapes.items()
        ],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT16, [1, HEADS, tokens, 64])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model)


def test_without_its_roundings_it_is_the_attention_that_was_never_rounded():
    narrow = attention(50)
    wide = with_fp16_attention(narrow)
    assert has_narrow_attention(narrow)
    assert not has_narrow_attention(wide)
    assert not has_narrow_attention(attention(50, narrow=False))
    kinds = {node.op_type for node in wide.graph.node}
    assert kinds == {"Transpose", "MatMul", "Softmax", "Mul"}
    inputs = {
        value.name: np.random.default_rng(0).normal(size=(1, HEADS, count, 64)).astype(np.float16)
        for value, count in zip(narrow.graph.input, (40, 50, 50), strict=True)
    }
    answers = [
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, inputs
        )[0]
        for each in (wide, attention(50, narrow=False), narrow)
    ]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()


@pytest.mark.parametrize(
    ("sm", "keys", "kind"),
    [(75, 384, "Int8"), (75, 400, "Half"), (86, 400, "Int8"), (86, 512, "Int8")],
)
def test_every_target_fuses_it_in_the_form_that_it_can(sm, keys, kind, tiny, capfd):
    pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    plan = build(tiny(attention(keys, tokens=4096)), sm).plans["decoder"]
    (fused,) = (layer for layer in plan.log.layers if "_mha" in layer["name"])
    assert {tensor["dtype"] for tensor in fused["inputs"]} == {kind}
    assert "Internal Error" not in capfd.readouterr().err
