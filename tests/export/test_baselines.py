"""The paper's baselines as bundles: MRCFA's contract, and what SegFormer leaves out of it."""

import json

import numpy as np
import onnxruntime as ort
import pytest

from mrcfa import Stream, preset
from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.data.world.labels import WORLD
from mrcfa.model.config import Method
from mrcfa.model.methods import build_model
from mrcfa.training.checkpoints import Facts, save_model
from mrcfa.training.recipe import Recipe
from mrcfa.video.sample import write_sample

BASELINES = ("segformer", pytest.param("feature-pyramid", marks=pytest.mark.thorough))
SIZE = (64, 96)


def shapes(specs):
    return {spec.name: list(spec.shape) for spec in specs}


def test_segformer_has_no_memory_and_the_bundle_says_so(baseline, command):
    path = baseline("segformer")
    manifest = json.loads((path / MANIFEST).read_text())
    assert (manifest["config"]["method"], manifest["config"]["references"]) == ("segformer", [])
    variant = Bundle.open(path).manifest.variants["fp32"]
    base = {"base": [1, 19, 16, 24]}
    assert shapes(variant.encoder.outputs) == base
    assert shapes(variant.decoder.inputs) == {**base, "frame": [1]}
    assert shapes(variant.decoder.outputs) == {"frame_out": [1], "mask": [1, 64, 96]}
    code, out, _ = command("inspect", path)
    assert code == 0
    assert "SegFormer b0, preset cityscapes" in out.decode()
    assert "no memory: every frame is segmented by itself" in out.decode()
    assert "state per stream: 4 B (frame)" in out.decode()


@pytest.mark.thorough
def test_a_feature_pyramid_remembers_keys_of_all_scales_and_features(baseline):
    decoder = Bundle.open(baseline("feature-pyramid")).manifest.variants["fp16"].decoder
    found = shapes(decoder.inputs)
    width = 256 // 4 + 160 + 64 + 32 + 256  # 1/32's keys are packed; values are features
    assert found["entry"] == [1, 24, width]
    assert found["memory"] == [1, 6, 24, width]
    assert found["query_4"] == [1, 16 * 24, 32]
    assert shapes(decoder.outputs)["memory_out"] == found["memory"]


@pytest.mark.parametrize("method", BASELINES)
def test_both_variants_passed_the_same_checks_as_mrcfas(method, baseline):
    variants = Bundle.open(baseline(method)).manifest.variants
    assert [(name, each.arrangement) for name, each in variants.items()] == [
        ("fp32", "ort_cpu"),
        ("fp16", "plain"),
    ]
    for variant in variants.values():
        names = [check["name"] for check in variant.parity if check["passed"]]
        assert names == ["largest logit error", "mean logit error", "pixels with the same class"]


@pytest.mark.parametrize("method", BASELINES)
def test_a_stream_serves_it_alike_eagerly_and_in_onnx_runtime(method, baseline, clip):
    frames = clip(9, *SIZE)
    masks = []
    for backend in ("eager", "onnxruntime:cpu"):
        with Stream(baseline(method), backend) as stream:
            masks.append([stream(frame) for frame in frames])
            stream.reset()
            assert np.array_equal(stream(frames[0]), masks[-1][0])
    assert len(np.unique(masks)) > 3
    assert (np.array(masks[0]) == np.array(masks[1])).mean() > 0.999


def test_a_frame_of_segformer_does_not_depend_on_those_before_it(baseline, clip):
    frames = clip(3, *SIZE)
    stream, other = Stream(baseline("segformer")), Stream(baseline("segformer"))
    for frame in frames[:2]:
        stream(frame)
    assert np.array_equal(stream(frames[2]), other(frames[2]))


@pytest.mark.parametrize("method", [*BASELINES, "mrcfa"])
def test_one_loop_of_the_host_runs_every_method(method, baseline, bundle, clip):
    """The loop of docs/bundle.md."""
    path = bundle("b0") if method == "mrcfa" else baseline(method)
    encoder, decoder = (
        ort.InferenceSession(path / f"{part}.onnx") for part in ("encoder", "decoder")
    )
    features, outputs = (
        [each.name for each in graph.get_outputs()] for graph in (encoder, decoder)
    )
    kinds = {"tensor(float)": np.float32, "tensor(int32)": np.int32}
    state = {
        each.name: np.zeros(each.shape, kinds[each.type])
        for each in decoder.get_inputs()
        if each.name not in features
    }
    frames = clip(4, *encoder.get_inputs()[0].shape[1:3])
    with Stream(path, "onnxruntime:cpu") as stream:
        for frame in frames:
            seen = dict(zip(features, encoder.run(None, {"image": frame[None]}), strict=True))
            answer = dict(zip(outputs, decoder.run(None, {**seen, **state}), strict=True))
            state = {name: answer[f"{name}_out"] for name in state}
            assert (answer["mask"][0] == stream(frame)).mean() > 0.999
    assert state["frame"] == [4]


@pytest.mark.thorough
def test_checkpoints_of_all_methods_are_exported_run_and_compared(tmp_path, command):
    data = tmp_path / "data"
    write_sample(data, {"val": 1}, frames=5, size=SIZE)
    for method in Method:
        config = preset(
            "vspw",
            "b0",
            size=SIZE,
            classes=12,
            references=(3, 1),
            method=method,
            depths=(1, 1, 1, 1),
        )
        checkpoint = tmp_path / f"{method.value}.safetensors"
        save_model(checkpoint, build_model(config, seed=3), Facts(config, WORLD, Recipe(), 9))
    words = ("--weights", "feature-pyramid.safetensors", "--variants", "fp32", "-o", "pyramid")
    code, _, err = command("export", *words)
    assert (code, err) == (0, "")
    assert Bundle.open("pyramid").config.method is Method.FEATURE_PYRAMID
    code, out, _ = command("eval", "pyramid", data, "--against", "segformer.safetensors")
    assert code == 0
    assert "difference" in out.decode()
    assert "mVC8" in out.decode()
    code, _, err = command("run", "pyramid", data / "data" / "val_0" / "origin", "-o", "masks")
    assert code == 0, err
    assert len(list((tmp_path / "masks").iterdir())) == 5


@pytest.mark.thorough
def test_a_bundle_without_memory_is_measured_like_any_other(baseline, command):
    words = "--frames 3 --warmup 0 --drift 0 --threads 1 --peer none"
    backends = ("--backends", "eager-clip,onnxruntime:cpu")
    code, out, err = command("bench", baseline("segformer"), *words.split(), *backends)
    assert code == 0, err
    assert "SegFormer b0, preset cityscapes" in out.decode()
    rows = [line for line in out.decode().splitlines() if line.startswith("| onnxruntime:cpu")]
    assert len(rows) == 2
