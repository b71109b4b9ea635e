"""8-bit graphs: their nodes, and the numbers that they compute."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mrcfa import Stream
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import STATE
from mrcfa.export.quantization.blocks import block_name, blocks_of
from mrcfa.export.quantization.formats import FORMATS


@pytest.fixture(params=["int8", pytest.param("fp8", marks=pytest.mark.thorough)])
def made(request, eight_bits):
    return Bundle.open(eight_bits(request.param)), request.param


def graphs_of(bundle, precision):
    variant = bundle.manifest.variants[precision]
    return {part: onnx.load(bundle.file(graph.file)) for part, graph in variant.graphs.items()}


def makers_of(graph):
    return {name: node for node in graph.node for name in node.output}


def readers_of(graph):
    found = {}
    for node in graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


def test_products_read_8_bits_and_answer_in_fp16(made):
    bundle, precision = made
    for part, model in graphs_of(bundle, precision).items():
        makers = makers_of(model.graph)
        kinds = {each.name: each.type.tensor_type.elem_type for each in model.graph.value_info}
        narrow = [
            node
            for node in model.graph.node
            if node.op_type in ("MatMul", "Conv")
            and all(
                name in makers and makers[name].op_type == "DequantizeLinear"
                for name in node.input[:2]
            )
        ]
        assert len(narrow) >= (30 if part == "encoder" else 4)
        for node in narrow:
            assert kinds[node.output[0]] == TensorProto.FLOAT16
            assert makers[node.input[0]].input[0].endswith("/quantized")


def test_weights_have_a_scale_for_each_channel_and_are_rounded_by_less_than_half_a_step(made):
    bundle, precision = made
    model = graphs_of(bundle, precision)["encoder"]
    weights = {each.name: each for each in model.graph.initializer}
    found = [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in weights
    ]
    assert found
    for node in found:
        stored = weights[node.input[0]]
        assert stored.data_type == FORMATS[precision].kind
        scale = numpy_helper.to_array(weights[node.input[1]]).astype(np.float32)
        axis = node.attribute[0].i
        assert scale.shape == (stored.dims[axis],)
        values = np.abs(numpy_helper.to_array(stored).astype(np.float32))
        others = tuple(each for each in range(values.ndim) if each != axis)
        reached = values.max(axis=others)[scale > 2**-19]  # of channels that are not all zeros
        assert (reached >= 0.93 * FORMATS[precision].largest).all()


def test_attention_is_in_8_bits_with_its_answer_rounded_where_it_is_made(made):
    """TensorRT fuses INT8 attention in no other form."""
    bundle, precision = made
    graph = graphs_of(bundle, precision)["encoder"].graph
    makers, readers = makers_of(graph), readers_of(graph)
    mixing = [
        node
        for node in graph.node
        if node.op_type == "MatMul"
        and makers[node.input[0]].op_type == "DequantizeLinear"
        and makers[makers[makers[node.input[0]].input[0]].input[0]].op_type == "Softmax"
    ]
    assert len(mixing) == sum(bundle.config.depths)
    for node in mixing:
        assert [each.op_type for each in readers[node.output[0]]] == ["QuantizeLinear"]


def test_what_reads_a_map_in_fp32_is_given_fp32(made):
    """TensorRT would write FP16 numbers for kernels that read the same ones."""
    bundle, precision = made
    model = graphs_of(bundle, precision)["decoder"]
    kinds = {each.name: each.type.tensor_type.elem_type for each in model.graph.value_info}
    makers = makers_of(model.graph)
    for node in model.graph.node:
        if node.op_type == "Cast" and kinds.get(node.output[0]) == TensorProto.FLOAT:
            maker = makers.get(node.input[0])
            assert maker is None or maker.op_type != "DequantizeLinear", node.name
    wide = [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and kinds[node.output[0]] == TensorProto.FLOAT
    ]
    assert {block_name(node.name) for node in wide} >= {"maa/16", "maa/8"}


@pytest.mark.parametrize(
    ("precision", "keys", "narrow"), [("int8", 512, True), ("int8", 513, False), ("fp8", 513, True)]
)
def test_attention_of_many_keys_is_in_8_bits_only_where_a_gpu_fuses_it(precision, keys, narrow):
    def tensor(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)

    scope = "encoder/stages/0/blocks/0/attn"
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], name=f"{scope}/scores"),
        helper.make_node("Softmax", ["s"], ["p"], name=f"{scope}/softmax"),
        helper.make_node("MatMul", ["p", "v"], ["o"], name=f"{scope}/mixing"),
    ]
    shapes = {"q": [2, 40, 32], "k": [2, 32, keys], "v": [2, keys, 32]}
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [tensor("o", [2, 40, 32])])
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph))
    blocks = blocks_of(model, "encoder", FORMATS[precision])
    found = [(block.products, block.tensors) for block in blocks]
    assert found == ([((f"{scope}/scores", f"{scope}/mixing"), ("o",))] if narrow else [])


def test_pixels_norms_and_state_are_not_rounded_to_8_bits(made):
    bundle, precision = made
    variant = bundle.manifest.variants[precision]
    assert {spec.dtype for spec in variant.tensors} == {"uint8", "int32", "float16"}
    graph = graphs_of(bundle, precision)["encoder"].graph
    makers = makers_of(graph)
    first = next(node for node in graph.node if node.op_type == "Conv")
    assert makers[first.input[0]].op_type != "DequantizeLinear"
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    assert norms
    assert all(makers[node.input[0]].op_type != "DequantizeLinear" for node in norms)


def test_the_state_is_what_the_encoder_answered_bit_for_bit(made, clip):
    import onnxruntime as ort

    bundle, precision = made
    variant = bundle.manifest.variants[precision]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    encoder, decoder = (
        ort.InferenceSession(bundle.file(graph.file), options) for graph in variant.graphs.values()
    )
    names = [value.name for value in encoder.get_outputs()]
    state = {
        spec.name: np.zeros(spec.shape, spec.dtype)
        for spec in variant.decoder.inputs
        if spec.name in STATE
    }
    entries = []
    for frame in clip(4, 96, 160):
        features = dict(zip(names, encoder.run(None, {"image": frame[None]}), strict=True))
        entries.append(features["entry"])
        answers = decoder.run(["memory_out", "frame_out"], {**features, **state})
        state = dict(zip(STATE, answers, strict=True))
    np.testing.assert_array_equal(state["memory"][0], np.concatenate(entries[-2:]))
    assert state["frame"] == [4]


def test_masks_are_close_to_the_reference_and_do_not_drift(made, clip):
    """The model looks two frames back, so frames 8 and 20 of a clip of six see the same."""
    bundle, precision = made
    frames = clip(6, 96, 160)
    with Stream(bundle.path, "onnxruntime:cpu", precision=precision, threads=1) as stream:
        masks = [stream(frames[number % 6]).copy() for number in range(21)]
    np.testing.assert_array_equal(masks[8], masks[20])
    with Stream(bundle.path, "onnxruntime:cpu", precision="fp32", threads=1) as stream:
        wanted = [stream(frames[number % 6]).copy() for number in range(9)]
    agreement = np.mean([(a == b).mean() for a, b in zip(masks, wanted, strict=False)])
    limits = bundle.manifest.variants[precision].limits
    assert agreement >= max(0.6, limits.agreement)  # of a random model: classes lie close together


def test_blocks_are_named_after_parts_of_the_model():
    assert block_name("encoder/stages/1/blocks/0/attn/q/MatMul") == "encoder/stages/1/blocks/0/attn"
    assert block_name("encoder/stages/2/embed/proj/Conv") == "encoder/stages/2/embed"
    assert block_name("fusion/stages/0/linear/MatMul") == "fusion"
    assert block_name("maa/8/0/conv/Conv") == "maa/8"
