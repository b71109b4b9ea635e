"""Graphs without grouped convs, in ONNX Runtime, against the graphs that they replace."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from engines.turing import without_grouped_convs


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


@pytest.mark.parametrize(("backbone", "part"), [("b0", "encoder"), ("b1", "decoder")])
def test_shifted_sums_compute_what_grouped_convs_do(backbone, part, bundle, clip):
    folder = bundle(backbone, output="logits")
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


def test_weights_of_each_group_and_several_channels_a_group_are_kept():
    """Against the conv itself, with all that the model's own convs do not have at once."""
    generator = np.random.default_rng(0)
    weight = generator.normal(size=(3 * 2, 4, 3, 5)).astype(np.float32)
    bias = generator.normal(size=6).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]>'
        "g (float[2, 12, 7, 9] x, float[6, 4, 3, 5] w, float[6] b) => (float[2, 6, 7, 9] y)"
        "{ y = Conv <group = 3, pads = [1, 2, 1, 2]> (x, w, b) }"
    )
    model.graph.node[0].name = "conv"
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")]
    )
    for value in list(model.graph.input)[1:]:
        model.graph.input.remove(value)
    inputs = {"x": generator.normal(size=(2, 12, 7, 9)).astype(np.float32)}
    (wanted,), (found,) = run(model, inputs), run(without_grouped_convs(model), inputs)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
