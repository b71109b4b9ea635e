"""ONNX graphs that are edited: what an edit leaves, and what takes the place of a node."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from mrcfa.bundle.edits import Rewrite, array_of, finished, inputs_of, only_consumer, producer


@pytest.fixture
def model():
    """x + 1 -> shown; a copy of it that nothing reads; and a constant that nothing reads."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["shown"], name="add"),
        helper.make_node("Identity", ["shown"], ["hidden"], name="copy"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "shown")]
    constants = [numpy_helper.from_array(np.float32([1]), name) for name in ("one", "unread")]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_an_edit_removes_constants_that_nothing_reads_and_keeps_nodes(model):
    edited = finished(ir.from_proto(model))
    assert [constant.name for constant in edited.graph.initializer] == ["one"]
    assert [node.name for node in edited.graph.node] == ["add", "copy"]
    assert len(model.graph.initializer) == 2


def test_a_rewrite_takes_the_place_the_name_and_the_consumers_of_a_node(model):
    copy = ir.from_proto(model)
    (add, identity) = copy.graph
    x, one = inputs_of(add)
    assert producer(identity.inputs[0], "Add") is add
    assert only_consumer(add.outputs[0], "Identity") is identity
    assert only_consumer(add.outputs[0], "Relu") is None
    rewrite = Rewrite(add)
    two = rewrite.constant("two", 2 * array_of(one))
    rewrite.replace([add], rewrite.node("Sub", [rewrite.node("Add", [x, two], "sum"), one]))
    edited = finished(copy)
    onnx.checker.check_model(edited, full_check=True)
    assert [node.name for node in edited.graph.node] == ["add/sum", "add", "copy"]
    inputs = {"x": np.float32([1, 2, 3])}
    first, second = (
        ort.InferenceSession(each.SerializeToString()).run(None, inputs)[0]
        for each in (model, edited)
    )
    np.testing.assert_array_equal(first, second)
