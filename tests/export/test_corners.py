"""The mask for CPUs against torch's own resize and argmax."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch.nn import functional as F

from export.corners import with_corner_mask
from export.exporter import Options, export_bundle
from export.onnx_graph import to_onnx
from export.retrieval import LastAxisMask, Mask
from mrcfa import Stream
from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.errors import MrcfaError

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


@pytest.fixture(scope="module", params=[(LastAxisMask, 18), (Mask, 17), (Mask, 23)], ids=str)
def tail(request):
    """(1, C, h, w) logits -> mask, by the graph that was given corners."""
    kind, opset = request.param
    last = kind is LastAxisMask
    name = "logits_last" if last else "logits"
    shape = (1, HEIGHT, WIDTH, CLASSES) if last else (1, CLASSES, HEIGHT, WIDTH)
    plain = to_onnx(kind(SIZE, SIZE), {name: torch.zeros(shape)}, ["mask"], opset)
    made = with_corner_mask(plain)
    assert not {node.op_type for node in made.graph.node} & {"Resize"}
    session = ort.InferenceSession(made.SerializeToString())

    def mask(logits):
        given = logits.permute(0, 2, 3, 1) if last else logits
        return session.run(None, {name: np.ascontiguousarray(given)})[0]

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


def test_only_masks_of_the_networks_size_have_a_decoder_for_cpus(bundle, tailored):
    def files(path):
        parts = Bundle.open(path).manifest.graphs.values()
        return [graph.cpu for graphs in parts for graph in graphs.values()]

    inlined = bundle("b0", "cityscapes", precisions=("fp32",), inline_functions=True)
    assert files(bundle("b0")) == [None, "decoder.cpu.onnx", None, None]
    assert files(inlined) == [None, "decoder.cpu.onnx"]
    assert set(files(bundle("b0", output="logits"))) == {None}
    assert set(files(tailored)) == {None}


def test_a_decoder_for_cpus_shifted_by_a_pixel_fails_the_export(
    tmp_path, monkeypatch, bundle, checkpoint
):
    source = Bundle.open(bundle("b0"))

    def traced(*_):
        return {part: onnx.load(source.path / f"{part}.onnx") for part in ("encoder", "decoder")}

    def shifted(decoder):
        model = with_corner_mask(decoder)
        (margins,) = (each for each in model.graph.initializer if each.name == "start")
        margins.CopyFrom(onnx.numpy_helper.from_array(np.array([2, 1]), "start"))
        (ends,) = (each for each in model.graph.initializer if each.name == "end")
        ends.CopyFrom(onnx.numpy_helper.from_array(np.array([98, 161]), "end"))
        return model

    monkeypatch.setattr("export.exporter._trace", traced)
    monkeypatch.setattr("export.exporter.with_corner_mask", shifted)
    options = Options((96, 160), precisions=["fp32"])
    with pytest.raises(MrcfaError, match="not the model: fp32 on CPUs pixels with the same class"):
        export_bundle(source.config, tmp_path / "b", checkpoint("b0"), options=options)
    assert not list(tmp_path.iterdir())


def test_a_bundle_from_before_there_were_two_decoders_runs(bundle, tmp_path, clip):
    copy = shutil.copytree(bundle("b0"), tmp_path / "copy")
    content = json.loads((copy / MANIFEST).read_text())
    for graphs in content["graphs"].values():
        for graph in graphs.values():
            del graph["cpu"]
    del content["files"]["decoder.cpu.onnx"]
    (copy / MANIFEST).write_text(json.dumps(content))
    (copy / "decoder.cpu.onnx").unlink()
    frames = clip(3, 96, 160)
    old, new = (Stream(path, "onnxruntime:cpu") for path in (copy, bundle("b0")))
    assert np.mean([old(frame) == new(frame) for frame in frames]) > 0.9999
