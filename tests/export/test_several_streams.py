"""Graphs with several streams on the first axis of every tensor."""

import numpy as np
import onnx
import pytest
from naming import names, naming
from onnx import helper, numpy_helper

from mrcfa import MRCFA, load_weights, preset
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.bundle.inspection import summary
from mrcfa.bundle.manifest import Output
from mrcfa.errors import InvalidValue
from mrcfa.export.exporter import ExportOptions, check_options
from mrcfa.export.proof import Proof, check_graphs
from mrcfa.export.variants import FP32_LIMITS
from mrcfa.model.config import Method


@pytest.fixture(scope="module")
def three(bundle):
    return Bundle.open(bundle("b0", streams=3))


def test_streams_are_the_first_axis_of_every_tensor(three, bundle):
    assert three.manifest.streams == 3
    lone = Bundle.open(bundle("b0")).manifest.variants
    for name, variant in three.manifest.variants.items():
        assert [(spec.name, spec.shape) for spec in variant.tensors] == [
            (spec.name, (3, *spec.shape[1:])) for spec in lone[name].tensors
        ]
        for graph in variant.graphs.values():
            model = onnx.load(three.file(graph.file)).graph
            ends = {
                value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
                for value in (*model.input, *model.output)
            }
            assert ends == {spec.name: spec.shape for spec in (*graph.inputs, *graph.outputs)}


def test_a_frame_costs_what_it_costs_a_lone_stream(three, bundle):
    lone = Bundle.open(bundle("b0")).manifest.variants
    for name, variant in three.manifest.variants.items():
        work, alone = (sum(cost.multiply_adds for cost in v.cost) for v in (variant, lone[name]))
        assert work == pytest.approx(alone, rel=0.02)
        assert [graph.parameters for graph in variant.graphs.values()] == pytest.approx(
            [graph.parameters for graph in lone[name].graphs.values()], rel=0.01
        )
    text = summary(three)
    assert "3 streams at once" in text
    states = [line for line in text.splitlines() if "state per stream" in line]
    assert all(line in summary(Bundle.open(bundle("b0"))) for line in states)


def test_on_cpus_each_stream_has_the_lone_streams_own_graph(three, bundle):
    for part in ("encoder", "decoder"):
        whole, lone = (
            onnx.load(each.file(f"{part}.onnx")).graph
            for each in (three, Bundle.open(bundle("b0")))
        )
        (scan,) = (node for node in whole.node if node.op_type == "Scan")
        (body,) = (item.g for item in scan.attribute if item.name == "body")
        assert [(node.op_type, node.name) for node in body.node] == [
            (node.op_type, node.name) for node in lone.node
        ]
        assert {node.op_type for node in whole.node} == {"Scan", "Squeeze", "Unsqueeze"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method", [Method.MRCFA, pytest.param(Method.FEATURE_PYRAMID, marks=pytest.mark.thorough)]
)
def test_every_methods_batch_is_proven_stream_by_stream(method, bundle):
    path = bundle(
        "b0", "cityscapes", method=method, size=(64, 96), streams=2, variants=("fp32-gpu",)
    )
    (variant,) = Bundle.open(path).manifest.variants.values()
    assert variant.streams == 2
    assert len(variant.parity) == 3  # an export whose checks fail is none


def test_streams_that_look_at_each_others_frames_are_noticed(three, tmp_path):
    model = onnx.load(three.file("decoder.onnx"))
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 0]), "others"))
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = "swapped" if name == "query_8" else name
    graph.node.insert(0, helper.make_node("Gather", ["query_8", "others"], ["swapped"], axis=0))
    onnx.save(model, tmp_path / "decoder.onnx")
    reference = MRCFA(three.config)
    load_weights(reference, three.file(WEIGHTS))
    proofs = {
        name: Proof(three.file("encoder.onnx"), decoder, True, FP32_LIMITS, 0.0)
        for name, decoder in (
            ("right", three.file("decoder.onnx")),
            ("wrong", tmp_path / "decoder.onnx"),
        )
    }
    found = check_graphs(reference, (96, 160), Output.MASK, 3, proofs, lambda text: None)
    assert all(check.passed for check in found.parities["right"].checks)
    assert not any(check.passed for check in found.parities["wrong"].checks)


@pytest.mark.parametrize("streams", [0, -1, 33])
def test_a_number_of_streams_that_makes_no_sense_is_refused(streams, command):
    code, out, err = command("export", "--streams", streams, "--size", "96x160")
    assert (code, out) == (2, b"")
    assert names(err, "streams", streams, 1, 32)


def test_tensors_of_all_streams_together_must_fit():
    config = preset("vspw", "b1", size=(2176, 3840))
    check_options(config, ExportOptions(config.size, streams=8))
    with pytest.raises(InvalidValue, match=naming("finest layer", "--streams")):
        check_options(config, ExportOptions(config.size, streams=32))
