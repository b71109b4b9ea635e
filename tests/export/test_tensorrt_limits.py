"""Graphs for GPUs keep to what TensorRT 10.3, the oldest that builds them, documents.

`docs/operators.md` of onnx-tensorrt 10.1, which the changelogs of 10.2 and 10.3 leave as it is for
these operators, and the operators' reference for TopK. What parses is not what builds and runs:
only a GPU of that age can show that.
"""

import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import get_attribute_value

from mrcfa.bundle import Bundle

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
NUMBERS = FLOATS | {TensorProto.INT32, TensorProto.INT64}
ANY = NUMBERS | {TensorProto.BOOL}
TYPES = {
    **dict.fromkeys(("AveragePool", "Clip", "Conv", "Erf", "Exp", "LayerNormalization"), FLOATS),
    **dict.fromkeys(("MatMul", "Pow", "Resize", "Softmax", "Sqrt"), FLOATS),
    **dict.fromkeys(("Add", "Div", "Max", "Min", "Mul", "Neg", "Relu", "Sub"), NUMBERS),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "TopK"), NUMBERS),
    **dict.fromkeys(("Concat", "Constant", "Expand", "Gather", "GatherND", "Reshape"), ANY),
    **dict.fromkeys(("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where"), ANY),
    "GreaterOrEqual": NUMBERS | {TensorProto.BOOL},
    "Cast": ANY | {TensorProto.UINT8},
}
"""Types that each operator reads and writes."""
OPSETS = range(9, 21)
MODES = {"linear", "nearest"}
COORDINATES = {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"}
MOST_CHOSEN = 3840


@pytest.fixture(
    scope="module", params=["mrcfa", pytest.param("feature-pyramid", marks=pytest.mark.thorough)]
)
def graphs(request, bundle, baseline):
    """Both graphs, `SelectTokens` inlined, as a parser sees them."""
    opened = Bundle.open(bundle("b0") if request.param == "mrcfa" else baseline(request.param))
    files = (graph.file for graph in opened.manifest.variants["fp16"].graphs.values())
    inlined = (onnx.inliner.inline_local_functions(onnx.load(opened.path / file)) for file in files)
    return [onnx.shape_inference.infer_shapes(each, data_prop=True) for each in inlined]


def types_of(graph):
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        found[value.name] = value.type.tensor_type.elem_type
    return found


def constants_of(graph):
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found[node.output[0]] = get_attribute_value(node.attribute[0])
    return {name: numpy_helper.to_array(tensor) for name, tensor in found.items()}


def test_every_operator_has_documented_types(graphs):
    for model in graphs:
        types = types_of(model.graph)
        for node in model.graph.node:
            data = node.input if node.op_type in ("Concat", "Where") else node.input[:1]
            for name in (*data, *node.output[:1]):
                assert types[name] in TYPES[node.op_type], f"{node.op_type} {node.name}: {name}"


def test_bytes_are_at_a_graphs_ends_alone(graphs):
    for model in graphs:
        ends = {value.name for value in (*model.graph.input, *model.graph.output)}
        types = types_of(model.graph)
        assert {name for name, kind in types.items() if kind == TensorProto.UINT8} <= ends


def test_opset_and_attributes_keep_to_documented_limits(graphs):
    for model in graphs:
        assert {item.version for item in model.opset_import if not item.domain} <= set(OPSETS)
        constants, seen = constants_of(model.graph), set()
        for node in model.graph.node:
            attributes = {item.name: get_attribute_value(item) for item in node.attribute}
            match node.op_type:
                case "ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceSum" | "Unsqueeze":
                    assert node.input[1] in constants, f"axes of {node.name}"
                case "Slice":
                    assert node.input[3] in constants, f"axes of {node.name}"
                case "Resize":
                    assert attributes["mode"].decode() in MODES
                    assert attributes["coordinate_transformation_mode"].decode() in COORDINATES
                    assert not attributes.get("antialias")
                case "TopK":
                    assert attributes.get("sorted", 1) == 1
                    assert constants[node.input[1]] <= MOST_CHOSEN
                case "LayerNormalization":
                    assert len(node.output) == 1
            seen.add(node.op_type)
        assert {"Gather", "Cast"} <= seen
