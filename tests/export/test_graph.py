"""Properties of the ONNX files that runtimes and people rely on."""

import platform

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from mrcfa.bundle import Bundle

VARIANTS = ["fp32", "fp16"]


@pytest.fixture(scope="module")
def graphs(bundle):
    """(variant, part) -> model, for a vspw bundle."""
    opened = Bundle.open(bundle("b0"))
    return {
        (variant, part): onnx.load(
            opened.path / opened.manifest.variants[variant].graphs[part].file
        )
        for variant in VARIANTS
        for part in ("encoder", "decoder")
    }


def operators(model):
    nodes = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    return {node.op_type for node in nodes}


def kinds(model):
    """Element type of every tensor of the main graph."""
    graph = model.graph
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        found[value.name] = value.type.tensor_type.elem_type
    return found


@pytest.mark.thorough
def test_fp32_graphs_for_gpus_have_no_fp16_which_some_gpus_lack(bundle):
    opened = Bundle.open(bundle("b0", variants=("fp32-gpu",)))
    for graph in opened.manifest.variants["fp32-gpu"].graphs.values():
        model = onnx.shape_inference.infer_shapes(onnx.load(opened.path / graph.file))
        assert TensorProto.FLOAT in kinds(model).values()
        assert TensorProto.FLOAT16 not in kinds(model).values()
        casts = [node for node in model.graph.node if node.op_type == "Cast"]
        assert TensorProto.FLOAT16 not in [node.attribute[0].i for node in casts]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_contracts_tensors_are_there_under_their_names(graphs, variant):
    def shapes(values):
        return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}

    features = {
        "base": [1, 124, 12, 20],
        "query_8": [1, 240, 64],
        "query_16": [1, 60, 160],
        "query_32": [1, 15, 256],
        "entry": [1, 15, 604],
    }
    state = {"memory": [1, 9, 15, 604], "frame": [1]}
    encoder, decoder = graphs[variant, "encoder"], graphs[variant, "decoder"]
    assert shapes(encoder.graph.input) == {"image": [1, 96, 160, 3]}
    assert shapes(encoder.graph.output) == features
    assert shapes(decoder.graph.input) == features | state
    assert shapes(decoder.graph.output) == {
        "mask": [1, 96, 160],
        "memory_out": state["memory"],
        "frame_out": state["frame"],
    }


def test_four_scales_add_a_query_and_pack_the_coarse_keys(bundle):
    opened = Bundle.open(bundle("b0", "cityscapes", output="logits", variants=("fp32",)))
    shapes = {spec.name: spec.shape for spec in opened.manifest.variants["fp32"].encoder.outputs}
    assert shapes["base"] == (1, 19, 24, 40)
    assert shapes["query_4"] == (1, 960, 32)
    assert shapes["entry"] == (1, 60, 256 // 4 + 160 + 64 + 32 + 19)


def test_nothing_in_graphs_for_gpus_depends_on_data_for_its_shape(graphs):
    for part in ("encoder", "decoder"):
        model = graphs["fp16", part]
        assert not operators(model) & {"NonZero", "Loop", "If", "Scan", "SequenceConstruct"}
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            dims = value.type.tensor_type.shape.dim
            assert all(dim.HasField("dim_value") for dim in dims), value.name


def test_the_boundary_has_no_int64(graphs):
    allowed = {TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT, TensorProto.FLOAT16}
    for model in graphs.values():
        values = (*model.graph.input, *model.graph.output)
        assert {value.type.tensor_type.elem_type for value in values} <= allowed


def test_layer_norms_stay_single_nodes(graphs):
    for variant in VARIANTS:
        found = [n.op_type for n in graphs[variant, "encoder"].graph.node]
        assert found.count("LayerNormalization") == 8 + 11  # around the stages, in their blocks


@pytest.mark.parametrize("variant", VARIANTS)
def test_stm_is_a_local_function_of_standard_operators(graphs, variant):
    decoder = graphs[variant, "decoder"]
    call = next(node for node in decoder.graph.node if node.op_type == "SelectTokens")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in call.attribute}
    assert call.domain == "mrcfa"
    assert attributes["plugin_namespace"] == b"mrcfa"
    assert attributes["plugin_version"] == b"1"
    assert attributes["keep"] == 12
    assert kinds(decoder)[call.output[0]] == TensorProto.INT32
    body = decoder.functions[0]
    assert (body.domain, body.name) == ("mrcfa", "SelectTokens")
    assert "TopK" in {node.op_type for node in body.node}
    constants = [node for node in body.node if node.op_type == "Constant"]
    assert {a.name for node in constants for a in node.attribute} == {"value"}  # for ORT 1.18–1.23
    assert "GatherND" in operators(decoder)


def test_fp16_graphs_have_no_fp32_matrix_product(graphs):
    for part in ("encoder", "decoder"):
        model = graphs["fp16", part]
        types = kinds(model)
        for node in model.graph.node:
            if node.op_type in ("MatMul", "Gemm", "Einsum", "Conv"):
                assert types[node.output[0]] == TensorProto.FLOAT16, node.name


def test_fp32_islands_hold_no_product_and_are_listed_in_the_manifest(graphs, bundle):
    variants = Bundle.open(bundle("b0")).manifest.variants
    assert variants["fp32"].encoder.wide == ()
    for part in ("encoder", "decoder"):
        names = {n.name: n.op_type for n in graphs["fp16", part].graph.node}
        wide = {names[name] for name in variants["fp16"].graphs[part].wide}
        assert not wide & {"MatMul", "Gemm", "Einsum", "Conv", "Resize"}
        assert wide & {"LayerNormalization", "ReduceMean"}


def test_no_weight_is_stored_in_both_precisions(graphs):
    for part in ("encoder", "decoder"):
        stored = {}
        for tensor in graphs["fp16", part].graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if values.dtype.kind == "f" and values.size > 8:
                key = (values.shape, values.astype("float16").tobytes())
                assert stored.setdefault(key, tensor.data_type) == tensor.data_type, tensor.name


def test_nodes_are_named_after_the_model_and_hold_no_trace_of_the_machine(graphs):
    encoder = graphs["fp32", "encoder"]
    names = [node.name for node in encoder.graph.node]
    assert len(set(names)) == len(names)
    assert "encoder/stages/0/embed/proj/Conv" in names
    assert "queries/8/convs/0/Conv" in {node.name for node in graphs["fp32", "decoder"].graph.node}
    assert "maa/8/0/conv/Conv" in {node.name for node in graphs["fp16", "decoder"].graph.node}
    for model in graphs.values():
        assert b".py" not in model.SerializeToString()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="not every CPU has the blocked layout")
def test_onnx_runtime_refines_in_its_blocked_layout(bundle, tmp_path):
    opened = Bundle.open(bundle("b1", output="logits", variants=("fp32", "fp16")))
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    decoder = opened.path / opened.manifest.variants["fp32"].decoder.file
    ort.InferenceSession(decoder, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "optimised.onnx").graph.node
    blocked = {node.op_type for node in nodes if node.domain == "com.microsoft.nchwc"}
    assert blocked >= {"Conv", "AveragePool", "Upsample"}
    plain = {node.name for node in nodes if node.op_type in ("Conv", "AveragePool", "Resize")}
    plain -= {node.name for node in nodes if node.domain == "com.microsoft.nchwc"}
    assert {name.partition("/")[0] for name in plain} == {"scores"}
