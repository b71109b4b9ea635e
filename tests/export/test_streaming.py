"""The exported graphs, fed back frame by frame, against the reference model on scheduled clips."""

from functools import cache

import numpy as np
import onnxruntime as ort
import pytest
import torch
from cases import authors_state, normalised

from export.exporter import Options, export_bundle
from mrcfa import MRCFA, load_weights, preset
from mrcfa.backends import open_backend
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.errors import MrcfaError
from mrcfa.schedule import references_at


def streamed(path, frames, precision="fp32"):
    """Logits of every frame, (T, classes, H/4, W/4)."""
    backend = open_backend(Bundle.open(path), "onnxruntime:cpu", precision=precision)
    state, logits = backend.start(), []
    for frame in frames:
        outputs, state = backend.step(frame, state)
        logits.append(outputs["logits"])
    return np.stack(logits).astype(np.float32)


@cache
def reference_model(path):
    bundle = Bundle.open(path)
    model = MRCFA(bundle.config)
    load_weights(model, bundle.file(WEIGHTS))
    return model


def on_clips(path, frames):
    """The same, by the reference model on the clip that the schedule gives each frame."""
    model = reference_model(path)
    offsets = model.config.references
    return np.concatenate(
        [
            model(normalised(frames[[*references_at(t, offsets), t]])).numpy()
            for t in range(len(frames))
        ]
    )


@pytest.mark.parametrize(
    ("dataset", "backbone"), [("vspw", "b0"), ("vspw", "b1"), ("cityscapes", "b0")]
)
def test_streaming_equals_the_clip_model_from_cold_start_on(dataset, backbone, bundle, clip):
    path, frames = bundle(backbone, dataset, output="logits"), clip(12, 96, 160)
    np.testing.assert_allclose(streamed(path, frames), on_clips(path, frames), atol=1e-4, rtol=0)


def test_other_references_and_share_of_tokens_stream_alike(bundle, clip):
    path = bundle("b0", output="logits", references=(4, 1), keep=0.3)
    frames = clip(7, 96, 160)
    np.testing.assert_allclose(streamed(path, frames), on_clips(path, frames), atol=1e-4, rtol=0)


def fp16_error(path, frames):
    """Mean absolute error of the FP16 graphs, and the share of equal classes."""
    wanted, found = on_clips(path, frames), streamed(path, frames, "fp16")
    assert np.isfinite(found).all()
    return np.abs(found - wanted).mean(), (found.argmax(axis=1) == wanted.argmax(axis=1)).mean()


FLAT = {"black": 0, "white": 255}


@pytest.mark.parametrize("backbone", ["b0", "b1"])
@pytest.mark.parametrize("content", ["clip", "noise", *FLAT])
def test_fp16_graphs_stay_close_and_finite(backbone, content, bundle, clip):
    if content == "clip":
        frames = clip(12, 96, 160)
    elif content == "noise":
        frames = np.random.default_rng(0).integers(0, 256, (12, 96, 160, 3), np.uint8)
    else:
        frames = np.full((12, 96, 160, 3), FLAT[content], np.uint8)
    error, agreement = fp16_error(bundle(backbone, output="logits"), frames)
    assert error <= 5e-3
    assert agreement >= 0.995


def test_fp16_survives_affinities_that_would_overflow_unscaled(tmp_path, clip):
    state = authors_state("b1")
    for key in state:
        if "hypercorre_module.q" in key or "hypercorre_module.k" in key:
            state[key] = 8 * state[key]
    torch.save(state, tmp_path / "large.pth")
    config = preset("vspw", "b1", size=(96, 160))
    options = Options(config.size, output="logits")
    path = tmp_path / "large"
    export_bundle(config, path, weights=tmp_path / "large.pth", options=options)
    error, agreement = fp16_error(path, clip(12, 96, 160))
    assert error <= 5e-3
    assert agreement >= 0.995


def test_a_camera_frame_is_resized_in_the_graphs_logits_before_argmax(bundle, clip):
    path = bundle("b0", frame=(108, 192))
    frames = clip(4, 108, 192)
    answers = {}
    for name in ("eager", "onnxruntime:cpu"):
        backend = open_backend(Bundle.open(path), name)
        state = backend.start()
        for frame in frames:
            outputs, state = backend.step(frame, state)
        answers[name] = outputs["mask"]
    assert answers["eager"].shape == (108, 192)
    assert (answers["eager"] == answers["onnxruntime:cpu"]).mean() > 0.999


def test_the_graphs_run_in_onnx_runtime_without_this_package(bundle, clip):
    path = bundle("b0")
    encoder = ort.InferenceSession(path / "encoder.onnx")
    decoder = ort.InferenceSession(path / "decoder.onnx")
    memory = np.zeros(decoder.get_inputs()[-2].shape, np.float32)
    number = np.zeros(1, np.int32)
    names = [value.name for value in encoder.get_outputs()]
    for frame in clip(3, 96, 160):
        features = dict(zip(names, encoder.run(None, {"image": frame[None]}), strict=True))
        mask, memory, number = decoder.run(
            ["mask", "memory_out", "frame_out"], {**features, "memory": memory, "frame": number}
        )
    assert number == 3
    assert mask.shape == (1, 96, 160)


def test_a_graph_that_is_not_the_model_fails_the_export_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("export.encoder.fold_query_scale", lambda query, channels: query)
    monkeypatch.setattr("export.encoder.STD", (1.0, 1.0, 1.0))
    config = preset("vspw", "b0", size=(64, 64))
    with pytest.raises(MrcfaError, match="not the model"):
        export_bundle(config, tmp_path / "b", options=Options((64, 64), precisions=["fp32"]))
    assert not list(tmp_path.iterdir())
