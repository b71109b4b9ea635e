"""The memory of an export: reported before it starts, and refused where it is missing."""

import onnx
import pytest
from naming import naming
from onnx import TensorProto, helper

import mrcfa.machine.hardware
from mrcfa import preset
from mrcfa.errors import Unsupported
from mrcfa.export.cost import activation_bytes
from mrcfa.export.exporter import ExportOptions
from mrcfa.export.memory import check_memory, needed_bytes


def test_a_machine_with_too_little_memory_is_told_so_before_any_work(monkeypatch):
    config = preset("vspw", "b1", size=(1088, 1920))
    options = ExportOptions(config.size)
    needed = needed_bytes(config, options)
    monkeypatch.setattr(mrcfa.machine.hardware, "available_memory", lambda: needed - 1)
    with pytest.raises(Unsupported, match=naming("3.5 GB", "--size")):
        check_memory(config, options)
    for there in (needed, None):
        monkeypatch.setattr(mrcfa.machine.hardware, "available_memory", lambda there=there: there)
        assert check_memory(config, options) == needed


def test_many_affinities_take_more_than_the_pixels_do():
    """Cityscapes refines ten times as many numbers as VSPW at as many pixels; it took 8.1 GB."""
    config = preset("cityscapes", "b1", size=(1024, 2048))
    assert needed_bytes(config, ExportOptions(config.size)) == pytest.approx(8.1e9, rel=0.05)


def test_this_machine_tells_its_memory():
    assert mrcfa.machine.hardware.available_memory() > 10**8


def test_activations_are_what_is_alive_at_once():
    """x -> a -> b (a view) -> c, and d beside them: c is made while a lives, d once a is gone."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Flatten", ["a"], ["b"], axis=0),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Concat", ["c", "c", "c"], ["d"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 100])],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, [3, 100])],
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph))
    assert activation_bytes(model) == 400 + 1200  # c and d; a and c were 800
