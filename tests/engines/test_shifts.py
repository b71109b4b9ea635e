"""Graphs without grouped convs, in ONNX Runtime, against the graphs that they replace."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from mrcfa.engines.shifts import without_grouped_convs


def run(model, inputs):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options).run(None, inputs)


def grouped_convs(model):
    return [
        node
        for node in model.graph.node
        if node.op_type == "Conv"
        and any(item.name == "group" and item.i > 1 for item in node.attribute)
    ]


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_shifted_sums_compute_what_grouped_convs_do(part, bundle, clip):
    folder = bundle("b1", output="logits")
    encoder = onnx.load(folder / "encoder.fp16.onnx")
    model = onnx.load(folder / f"{part}.fp16.onnx")
    inputs = {"image": clip(1, 96, 160)}
    if part == "decoder":
        names = [value.name for value in encoder.graph.output]
        inputs = dict(zip(names, run(encoder, inputs), strict=True))
        memory = next(value for value in model.graph.input if value.name == "memory")
        shape = [dim.dim_value for dim in memory.type.tensor_type.shape.dim]
        inputs |= {"memory": np.zeros(shape, np.float16), "frame": np.zeros(1, np.int32)}

    rewritten = without_grouped_convs(model)
    onnx.checker.check_model(rewritten, full_check=True)
    assert grouped_convs(model)
    assert not grouped_convs(rewritten)
    for wanted, found in zip(run(model, inputs), run(rewritten, inputs), strict=True):
        scale = np.abs(wanted.astype(np.float32)).max() + 1e-6
        assert np.abs(found.astype(np.float32) - wanted).mean() <= 1e-3 * scale
        assert found.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("attributes", "shape", "left"),
    [
        ({"pads": [1, 2, 1, 2]}, [2, 6, 7, 9], 0),
        ({"pads": [2, 0, 0, 4]}, [2, 6, 7, 9], 0),
        ({}, [2, 6, 5, 5], 0),
        ({"strides": [2, 1]}, [2, 6, 3, 5], 1),
        ({"dilations": [2, 2]}, [2, 6, 3, 1], 1),
    ],
)
def test_any_conv_of_groups_is_kept_or_computes_the_same(attributes, shape, left):
    """Several channels a group, weights of their own: more than the model's own convs have."""
    generator = np.random.default_rng(0)
    weight = generator.normal(size=(3 * 2, 4, 3, 5)).astype(np.float32)
    bias = generator.normal(size=6).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", group=3, **attributes)],
        "conv",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 12, 7, 9])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    rewritten = without_grouped_convs(model)
    assert len(grouped_convs(rewritten)) == left
    inputs = {"x": generator.normal(size=(2, 12, 7, 9)).astype(np.float32)}
    (wanted,), (found,) = run(model, inputs), run(rewritten, inputs)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
