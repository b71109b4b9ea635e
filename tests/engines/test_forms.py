"""The choice among the forms of a graph, with the real TensorRT-RTX: by time, else by cost."""

from dataclasses import replace

import numpy as np
import pytest
from naming import names
from onnx import TensorProto, helper, numpy_helper
from tiny_bundle import build, model
from typer.testing import CliRunner

import mrcfa.engines.builder
import mrcfa.engines.selection
from mrcfa import cli
from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.layers import read_log
from mrcfa.bundle.manifest import FormChoice, Graph, PlanCost, TensorSpec
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.forms import forms_of
from mrcfa.engines.selection import choose_form
from mrcfa.engines.target import Target
from mrcfa.errors import RuntimeFailed
from mrcfa.machine import hardware
from mrcfa.machine.hardware import Gpu

trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")

BOTH = {"as exported", "shifted sums"}


def grouped():
    """A depthwise conv and a ReLU."""
    weight = numpy_helper.from_array(np.ones((8, 1, 3, 3), np.float16), "weight")
    nodes = [
        helper.make_node("Conv", ["a", "weight"], ["b"], name="conv", group=8, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
    ]
    shape = [1, 8, 32, 32]
    made = model(nodes, {"a": (TensorProto.FLOAT16, shape)}, {"c": (TensorProto.FLOAT16, shape)})
    made.graph.initializer.append(weight)
    value = helper.make_tensor_value_info("b", TensorProto.FLOAT16, shape)
    made.graph.value_info.append(value)
    return made


@pytest.fixture
def bundle(tiny):
    return tiny(grouped())


@pytest.fixture
def altered_logs(monkeypatch):
    """`altered_logs("shifted sums", change)`: the log of the decoder's build is changed in texts.

    Without a name the logs of all forms are.
    """

    def alter(form, change):
        seen = iter(["encoder", "as exported", "shifted sums"])

        def altered(messages, frames):
            if next(seen) in ((form,) if form else BOTH):
                messages = [message._replace(text=change(message.text)) for message in messages]
            return read_log(messages, frames)

        monkeypatch.setattr(mrcfa.engines.builder, "read_log", altered)

    return alter


def test_the_form_of_the_lowest_cost_is_built_and_the_reason_is_told(bundle):
    words = ["build", str(bundle), "--flavour", "rtx", "--sm", "86"]
    answer = CliRunner().invoke(cli.app, words)
    assert answer.exit_code == 0, answer.output
    (engine,) = Bundle.open(bundle).manifest.engines
    assert engine.forms["encoder"] == FormChoice("as exported", "only")
    chosen = engine.forms["decoder"]
    assert chosen.chosen_by == "cost"
    assert chosen.milliseconds.keys() == BOTH
    assert chosen.form == min(chosen.milliseconds, key=chosen.milliseconds.get)
    assert str(chosen) in answer.stdout
    inspected = CliRunner().invoke(cli.app, ["inspect", str(bundle)]).stdout
    assert str(chosen) in inspected


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("LayerType", "Kind"),
        lambda text: text.replace("Datatype: Half", "Datatype: Posit16"),
    ],
    ids=["another format", "an unknown type"],
)
def test_a_form_whose_cost_cannot_be_read_is_never_chosen(change, bundle, altered_logs, capsys):
    cheapest = build(bundle, 86).engine.forms["decoder"].form
    assert capsys.readouterr().err == ""
    altered_logs(cheapest, change)
    built = build(bundle, 86)
    (other,) = BOTH - {cheapest}
    assert built.engine.forms["decoder"].form == other
    assert built.engine.forms["decoder"].milliseconds.keys() == {other}
    assert names(capsys.readouterr().err, "decoder.fp16.onnx", cheapest, "cost")


def test_where_no_cost_can_be_read_the_graph_is_built_as_it_is(bundle, altered_logs, capsys):
    altered_logs(None, lambda text: text.replace("LayerType", "Kind"))
    engine = build(bundle, 86).engine
    assert engine.forms["decoder"] == FormChoice("as exported", "order")
    assert engine.costs.keys() == {"encoder"}
    assert engine.layers is None
    warned = capsys.readouterr().err
    assert all(names(warned, "decoder.fp16.onnx", form) for form in BOTH)


def test_where_the_gpu_is_the_fastest_form_is_built(bundle, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("Quadro RTX 6000", 75), Gpu("L4", 89)])
    cheapest = build(bundle, 86).engine.forms["decoder"].form
    (other,) = BOTH - {cheapest}
    timed = []

    def seconds_of(module, device, plans, version_compatible):
        timed.append((module, device, len(plans)))
        return [0.001 if form == other else 0.002 for form in ("as exported", "shifted sums")]

    monkeypatch.setattr(mrcfa.engines.selection, "seconds_of", seconds_of)
    chosen = build(bundle, 86, 89).engine.forms["decoder"]
    assert timed == [(trt, 1, 2)]
    assert (chosen.form, chosen.chosen_by) == (other, "time")
    assert chosen.milliseconds == {other: 1.0, cheapest: 2.0}


def test_where_the_forms_cannot_be_timed_the_cost_decides(bundle, monkeypatch, capsys):
    def fail(*arguments):
        raise RuntimeFailed("the driver is too old")

    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("L4", 89)])
    monkeypatch.setattr(mrcfa.engines.selection, "seconds_of", fail)
    assert build(bundle, 89).engine.forms["decoder"].chosen_by == "cost"
    assert names(capsys.readouterr().err, "decoder.fp16.onnx", "the driver is too old")


def test_tensorrt_itself_gets_both_forms_of_grouped_convs(bundle, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    target = Target(Flavour.TENSORRT, trt, (86,))
    built = build_engines(bundle, target, BuildOptions())
    assert built.engine.forms["decoder"].milliseconds.keys() == BOTH


@pytest.mark.parametrize(
    ("flavour", "sm", "forms"),
    [
        (Flavour.RTX, 75, BOTH - {"as exported"}),
        (Flavour.RTX, 89, BOTH),
        (Flavour.TENSORRT, 75, BOTH),
        (Flavour.TENSORRT, 87, BOTH),
    ],
)
def test_only_rtx_on_turing_needs_shifted_sums(flavour, sm, forms):
    graph = grouped().SerializeToString()
    assert forms_of(graph, Target(flavour, trt, (sm,)), plugin=False).keys() == forms


FRAME = TensorSpec("image", "uint8", (1, 8, 8, 3))
GRAPH = Graph("encoder.onnx", (FRAME,), ())
FEW_BYTES = PlanCost(kernels=101, bytes_written=5_000_000, bytes_read=4_000_000)
FEW_KERNELS = PlanCost(kernels=100, bytes_written=5_000_000, bytes_read=5_000_000)


@pytest.mark.parametrize(("sm", "form"), [(121, "few bytes"), (120, "few kernels")])
def test_bytes_cost_more_where_memory_is_slow(sm, form, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    plans, costs = ["few kernels", "few bytes"], [FEW_KERNELS, FEW_BYTES]
    found = choose_form(
        dict.fromkeys(plans, b""),
        dict(zip(plans, costs, strict=True)),
        Target(Flavour.RTX, trt, (sm,)),
        GRAPH,
        version_compatible=False,
    )
    assert found.form == form


def test_streams_share_a_pass_and_its_pauses(monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: [])
    four = replace(GRAPH, inputs=(replace(FRAME, shape=(4, 8, 8, 3)),))

    def milliseconds(graph):
        costs = {"a": PlanCost(100, 0, 0), "b": PlanCost(0, 0, 10**9)}
        target = Target(Flavour.RTX, trt, (89,))
        return choose_form(dict.fromkeys(costs, b""), costs, target, graph, False).milliseconds

    one, shared = milliseconds(GRAPH), milliseconds(four)
    assert one["a"] == pytest.approx(0.2)
    assert shared["a"] == pytest.approx(0.05)
    assert shared["b"] == pytest.approx(one["b"])
