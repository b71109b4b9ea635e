"""Depthwise convs with channels last, in ONNX Runtime, against the convs that they replace."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from mrcfa.engines.depthwise import with_channels_last


def run(model, image):
    session = ort.InferenceSession(model.SerializeToString())
    return session.run(None, {"image": image})[0]


def graph(kernel=3, pads=(1, 1, 1, 1), group=6, after=(0, 2, 3, 1), dtype=np.float32):
    """Transpose → conv → transpose on (2, 7, 9, 6)."""
    numbers = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(numbers.normal(size=shape).astype(dtype), name)
        for name, shape in (("weight", (6, 6 // group, kernel, kernel)), ("bias", (6,)))
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Relu", ["image"], ["rectified"], name="relu"),
        helper.make_node("Transpose", ["rectified"], ["first"], name="to", perm=[0, 3, 1, 2]),
        helper.make_node(
            "Conv", ["first", "weight", "bias"], ["conv"], name="dw", group=group, pads=list(pads)
        ),
        helper.make_node("Transpose", ["conv"], ["last"], name="back", perm=list(after)),
        helper.make_node("Identity", ["last"], ["answer"], name="end"),
    ]
    made = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("image", kind, [2, 7, 9, 6])],
        [helper.make_tensor_value_info("answer", kind, [None] * 4)],
        weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize(
    ("kernel", "pads"), [(3, (1, 1, 1, 1)), (5, (2, 2, 2, 2)), (3, (0, 2, 2, 0))]
)
def test_a_depthwise_conv_between_transposes_is_a_sum_without_them(kernel, pads):
    model = graph(kernel, pads)
    rewritten = with_channels_last(model)
    onnx.checker.check_model(rewritten, full_check=True)
    assert "Conv" not in {node.op_type for node in rewritten.graph.node}
    image = np.random.default_rng(1).normal(size=(2, 7, 9, 6)).astype(np.float32)
    np.testing.assert_allclose(run(rewritten, image), run(model, image), atol=1e-5)


def test_sums_of_fp16_are_fp32_and_the_answer_is_fp16():
    rewritten = with_channels_last(graph(dtype=np.float16))
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in onnx.shape_inference.infer_shapes(rewritten).graph.value_info
    }
    assert {kinds[name] for name in kinds if "/sum_" in name} == {TensorProto.FLOAT}
    assert kinds["last"] == TensorProto.FLOAT16


@pytest.mark.parametrize(
    "changes", [{"group": 2}, {"pads": (0, 0, 0, 0)}, {"after": (0, 3, 2, 1)}, {"group": 1}]
)
def test_other_convs_stay(changes):
    model = graph(**changes)
    assert [node.op_type for node in with_channels_last(model).graph.node] == [
        node.op_type for node in model.graph.node
    ]
