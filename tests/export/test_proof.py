"""Which frames an export compares, and what it finds."""

import numpy as np
import onnx
import pytest
from naming import naming
from onnx import numpy_helper

from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.bundle.manifest import Output
from mrcfa.data.presets import preset
from mrcfa.errors import NotEqual
from mrcfa.export import proof as proof_module
from mrcfa.export.proof import Proof, check_graphs, compared_frames
from mrcfa.export.variants import VARIANTS
from mrcfa.model.methods import build_model
from mrcfa.model.weights import load_weights


@pytest.mark.parametrize(
    ("dataset", "size", "frames"),
    [
        ("vspw", (480, 864), list(range(12))),
        ("cityscapes", (512, 1024), list(range(12))),
        ("vspw", (1088, 1920), list(range(11))),
        ("cityscapes", (1024, 2048), [0, 7]),
        ("vspw", (2176, 3840), [0, 10]),
    ],
)
def test_cold_start_and_steady_state_are_always_compared(dataset, size, frames):
    assert compared_frames(preset(dataset, "b1", size=size)) == frames


@pytest.fixture(scope="module")
def proof(bundle):
    """b0's model, and how its FP32 graphs are proven with any decoder."""
    opened = Bundle.open(bundle("b0"))
    model = build_model(opened.config)
    load_weights(model, opened.file(WEIGHTS))

    def proven(decoder=None, streams=1):
        variant = VARIANTS["fp32"]
        files = opened.path / "encoder.onnx", decoder or opened.path / "decoder.onnx"
        proofs = {"fp32": Proof(*files, True, variant.limits, variant.resolution)}
        return check_graphs(model, (96, 160), Output.MASK, streams, proofs, lambda text: None)

    return proven


@pytest.fixture(scope="module")
def whole(proof):
    """The proof of the exported graphs, in which every frame is compared."""
    return proof()


def test_frames_between_those_compared_are_remembered(proof, whole, monkeypatch):
    """The last frame's references are frames that nothing was compared of."""
    monkeypatch.setattr(proof_module, "AFFINITIES", 1)
    some = proof()
    assert (list(whole.frames), list(some.frames)) == (list(range(12)), [0, 11])
    assert (some.masks == whole.masks[[0, 11]]).all()
    assert all(each.passed for each in some.parities["fp32"].checks)


@pytest.mark.parametrize(
    ("error", "passed"), [(1e-4, False), pytest.param(1e-6, True, marks=pytest.mark.thorough)]
)
def test_fp32_logits_may_be_off_by_rounding_errors_only(
    proof, whole, bundle, tmp_path, error, passed
):
    """The error is a share of the range of all logits."""
    exact = whole.parities["fp32"]
    added = error * (exact.high - exact.low)
    changed = with_addition(bundle("b0") / "decoder.onnx", "logits_last", np.float32(added))
    onnx.save(changed, tmp_path / "decoder.onnx")
    checks = proof(tmp_path / "decoder.onnx").parities["fp32"].checks
    assert all(each.passed for each in checks) == passed


@pytest.mark.parametrize("name", ["memory_out", "frame_out"])
def test_a_decoder_that_does_not_remember_exactly_is_not_the_model(proof, bundle, tmp_path, name):
    little = np.int32(1) if name == "frame_out" else np.float32(1e-6)
    changed = with_addition(bundle("b0") / "decoder.onnx", name, little)
    onnx.save(changed, tmp_path / "decoder.onnx")
    with pytest.raises(NotEqual, match=naming(name)):
        proof(tmp_path / "decoder.onnx")


def with_addition(path, name, number):
    """The graph in a file with a number added to one of its tensors."""
    model = onnx.load(path)
    nodes = list(model.graph.node)
    (index,) = (i for i, node in enumerate(nodes) if name in node.output)
    maker = nodes[index]
    maker.output[list(maker.output).index(name)] = "exact"
    model.graph.initializer.append(numpy_helper.from_array(number, "number"))
    nodes.insert(index + 1, onnx.helper.make_node("Add", ["exact", "number"], [name]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
