"""Layers and costs from TensorRT's log of a build, and logs that cannot be read."""

import pytest
from naming import names

from mrcfa.bundle.flavours import Message
from mrcfa.bundle.layers import read_log
from mrcfa.bundle.manifest import PlanCost

RTX = (
    "Layers:\n"
    "Name: gather, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [2,8], Datatype: Half }], "
    "Constants: [ { Name: w, Dimensions: [8], Datatype: Float }], Outputs: [ { Name: y, "
    "Dimensions: [2,4], Datatype: Float }, { Name: z, Dimensions: [3], Datatype: UInt8 }], "
    "TacticName: t, StreamId: 0\n"
    "Name: wait, LayerType: wait, Inputs: [], Outputs: [], TacticName: , StreamId: 0\n"
    "\n"
    "I/O Tensors:\n"
    " Name: x, IOMode: Input, DataType: Half"
)
MEMORY = Message(3, "Total Activation Memory: 512 bytes\nTotal Weights Memory: 32 bytes")
TENSORRT = (
    "Layers:\n"
    "Name: conv + relu, LayerType: CaskConvolution, Inputs: [ { Name: image, Location: Device, "
    "Dimensions: [1,3,8,8], Format/Datatype: Half }], Outputs: [ { Name: relu, "
    "Location: Device, Dimensions: [1,64,8,8], Format/Datatype: Half }], "
    "ParameterType: Convolution, "
    'Weights: {"Type": "Half", "Count": 23232}, TacticName: sm80_xmma_fprop, '
    "TacticValue: 0x28, StreamId: 0, Metadata: [ONNX Layer: a/Conv][ONNX Layer: a/Relu]"
)


def test_what_kernels_move_is_added_up():
    found = read_log([Message(4, RTX), MEMORY])
    assert found.cost == PlanCost(1, 4 * 8 + 3, 2 * 16 + 4 * 8, 512, 32)
    assert found.unread == ()
    assert [layer["name"] for layer in found.layers] == ["gather", "wait"]


def test_several_frames_in_one_pass_share_the_bytes_and_not_the_kernels():
    assert read_log([Message(4, RTX), MEMORY], frames=5).cost == PlanCost(1, 7, 12, 512, 32)


def test_layers_are_read_from_the_lines_of_tensorrt_10_too():
    found = read_log([Message(4, "Name: image, IOMode: Input"), Message(4, TENSORRT)])
    assert found.layers == [
        {
            "name": "conv + relu",
            "type": "CaskConvolution",
            "tactic": "sm80_xmma_fprop",
            "nodes": ["a/Conv", "a/Relu"],
            "inputs": [{"name": "image", "dtype": "Half", "shape": [1, 3, 8, 8]}],
            "constants": [],
            "outputs": [{"name": "relu", "dtype": "Half", "shape": [1, 64, 8, 8]}],
        }
    ]
    assert found.cost == PlanCost(1, 2 * 64 * 64, 2 * 3 * 64)


@pytest.mark.parametrize(
    ("phrase", "size"),
    [
        ("Row major linear FP32", 4),
        ("Channel major FP16 format where channel % 8 == 0", 2),
        ("Thirty-two wide channel vectorized row major Int8 format", 1),
    ],
)
def test_types_are_read_from_the_phrases_of_tensorrt_9_and_10(phrase, size):
    text = TENSORRT.replace("Format/Datatype: Half", f"Format/Datatype: {phrase}")
    assert read_log([Message(4, text)]).cost.bytes_written == size * 64 * 64


@pytest.mark.parametrize(
    ("before", "after", "things"),
    [
        ("Datatype: UInt8", "Datatype: Posit16", ["Posit16"]),
        ("Dimensions: [2,4]", "Shape: [2,4]", ["outputs", "gather"]),
        ("Dimensions: [8]", "Dimensions: [-1]", ["constants", "gather"]),
        ("Outputs: [ {", "Results: [ {", ["outputs", "gather"]),
        ("Name: wait, LayerType", "Name: wait, Kind", ["wait"]),
        ("LayerType: kgen", "LayerType: Myelin", ["gather"]),
        ("LayerType", "Kind", ["layer"]),
    ],
)
def test_a_log_that_is_partly_unread_gives_no_cost_and_names_the_part(before, after, things):
    assert before in RTX
    found = read_log([Message(4, RTX.replace(before, after)), MEMORY])
    assert found.cost is None
    assert names("; ".join(found.unread), *things)


def test_a_log_without_layers_gives_no_cost():
    assert read_log([]).cost is None
    assert read_log([MEMORY]).unread
