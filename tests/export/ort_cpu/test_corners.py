"""The mask for CPUs against torch's own resize and argmax."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from naming import naming
from torch.nn import functional as F

from mrcfa.bundle import Bundle
from mrcfa.errors import NotEqual
from mrcfa.export.exporter import ExportOptions, export_bundle
from mrcfa.export.onnx_graph import to_onnx
from mrcfa.export.ort_cpu.corners import LOGITS, with_corner_mask
from mrcfa.export.ort_cpu.retrieval import LastAxisMask
from mrcfa.export.precision import in_fp32
from mrcfa.export.variants import VARIANTS
from mrcfa.model.frames import FullSizeMask

CLASSES, HEIGHT, WIDTH = 5, 37, 11
SIZE = (4 * HEIGHT, 4 * WIDTH)


def noise():
    return torch.randn(1, CLASSES, HEIGHT, WIDTH)


def one_class():
    return torch.zeros(1, CLASSES, HEIGHT, WIDTH).index_fill(1, torch.tensor([3]), 1.0)


def an_outsider_between():
    """Columns take turns between the first two classes, and between them the third leads."""
    columns = torch.arange(WIDTH) % 2 * 20.0 - 10
    third = torch.full((WIDTH,), 3.0)
    worse = torch.full((WIDTH,), -20.0)
    scores = torch.stack([columns, -columns, third, worse, worse])
    return scores.view(1, CLASSES, 1, WIDTH).expand(1, CLASSES, HEIGHT, WIDTH).contiguous()


def ties():
    return torch.zeros(1, CLASSES, HEIGHT, WIDTH)


@pytest.fixture(
    scope="module",
    params=[18, *(pytest.param(opset, marks=pytest.mark.thorough) for opset in (17, 23))],
)
def tail(request):
    """(1, C, h, w) logits -> mask, by the graph that was given corners."""
    logits = {LOGITS: torch.zeros(1, HEIGHT, WIDTH, CLASSES)}
    made = with_corner_mask(to_onnx(LastAxisMask(SIZE, SIZE), logits, ["mask"], request.param))
    assert not {node.op_type for node in made.graph.node} & {"Resize"}
    session = ort.InferenceSession(made.SerializeToString())

    def mask(logits):
        return session.run(None, {LOGITS: np.ascontiguousarray(logits.permute(0, 2, 3, 1))})[0]

    return mask


@pytest.mark.parametrize("picture", [noise, one_class, an_outsider_between, ties])
def test_the_mask_is_that_of_the_whole_resize(tail, picture):
    torch.manual_seed(0)
    logits = picture()
    full = F.interpolate(logits, size=SIZE, mode="bilinear", align_corners=False)
    np.testing.assert_array_equal(tail(logits), full.argmax(dim=1).numpy())


def test_the_outsider_is_there():
    full = F.interpolate(an_outsider_between(), size=SIZE, mode="bilinear", align_corners=False)
    assert set(full.argmax(dim=1).unique().tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    "frame",
    [
        (150, 60),
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ((300, 200), (40, 30))),
    ],
)
def test_a_mask_of_another_size_is_made_in_strips(frame, monkeypatch):
    monkeypatch.setattr("mrcfa.export.ort_cpu.retrieval.STRIP", 5000)
    torch.manual_seed(0)
    logits = noise()
    mask = in_fp32(LastAxisMask(SIZE, frame))
    graph = to_onnx(mask, {"scores": logits.permute(0, 2, 3, 1)}, ["mask"], 18)
    largest = max(
        np.prod([dim.dim_value for dim in value.type.tensor_type.shape.dim])
        for value in graph.graph.value_info
    )
    assert largest < CLASSES * max(frame[0] * frame[1], SIZE[0] * SIZE[1])
    session = ort.InferenceSession(graph.SerializeToString())
    scores = np.ascontiguousarray(logits.permute(0, 2, 3, 1))
    (found,) = session.run(None, {"scores": scores})
    wanted = FullSizeMask(SIZE, frame)(logits).numpy()
    assert (found == wanted).mean() > 0.999


@pytest.mark.thorough
def test_only_masks_of_the_networks_size_are_made_from_corners(bundle, tailored):
    def has_corners(path, variant="fp32"):
        file = Bundle.open(path).manifest.variants[variant].decoder.file
        return "Scan" in {node.op_type for node in onnx.load(path / file).graph.node}

    inlined = bundle("b0", "cityscapes", variants=("fp32",), inline_functions=True)
    assert has_corners(bundle("b0"))
    assert has_corners(inlined)
    assert not has_corners(bundle("b0"), "fp16")
    assert not has_corners(bundle("b1", output="logits"))
    assert not has_corners(tailored)


def test_a_decoder_shifted_by_a_pixel_fails_the_export(tmp_path, monkeypatch, checkpoint, bundle):
    source = Bundle.open(bundle("b0"))

    def shifted(decoder):
        model = with_corner_mask(decoder)
        (margins,) = (each for each in model.graph.initializer if each.name == "start")
        margins.CopyFrom(onnx.numpy_helper.from_array(np.array([2, 1]), "start"))
        (ends,) = (each for each in model.graph.initializer if each.name == "end")
        ends.CopyFrom(onnx.numpy_helper.from_array(np.array([98, 161]), "end"))
        return model

    def traced(module, inputs, *rest, **named):
        if "image" in inputs:
            return onnx.load(source.path / "encoder.onnx")
        return to_onnx(module, inputs, *rest, **named)

    monkeypatch.setattr("mrcfa.export.exporter.to_onnx", traced)
    monkeypatch.setattr("mrcfa.export.exporter.with_corner_mask", shifted)
    options = ExportOptions((96, 160), variants=[VARIANTS["fp32"]])
    weights = checkpoint("b0", source.config.depths)
    with pytest.raises(NotEqual, match=naming("fp32", "pixels")):
        export_bundle(source.config, tmp_path / "b", weights, options=options)
    assert not list(tmp_path.iterdir())
