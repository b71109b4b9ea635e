"""Runs of `mrcfa train` and the single-frame head, evaluated as bundles are."""

import numpy as np
import pytest
import torch
from naming import naming

from mrcfa import MRCFA, preset
from mrcfa.benchmarks.candidate import Candidate
from mrcfa.benchmarks.evaluate import EvalOptions, evaluate
from mrcfa.data.labels import IGNORED
from mrcfa.data.world.labels import WORLD
from mrcfa.errors import Damaged, Unsupported
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.training.checkpoints import Facts, save_model
from mrcfa.training.recipe import Recipe
from mrcfa.training.runs import BEST
from mrcfa.video.sample import write_sample

SIZE = (64, 96)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run's folder with a checkpoint, and data for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = preset("vspw", "b0", size=SIZE, classes=12)
    (tmp_path / "run").mkdir()
    model = MRCFA(config, seed=4)
    save_model(tmp_path / "run" / BEST, model, Facts(config, WORLD, Recipe(), 7))
    write_sample(tmp_path / "data", {"val": 1}, frames=4, size=SIZE)
    return tmp_path / "run"


def test_a_run_is_evaluated_by_its_best_checkpoint(run):
    options = EvalOptions(run.parent / "data")
    whole = evaluate(Candidate(run), options)
    named = evaluate(Candidate(run / BEST), options)
    assert (whole.backend, whole.frames) == ("eager (PyTorch, CPU, fp32)", 4)
    assert named.metrics == pytest.approx(whole.metrics, nan_ok=True)


def test_single_answers_every_frame_alone(run):
    alone = Candidate(run, single=True)
    frame = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
    with alone.opened() as segmenter, torch.no_grad():
        model = MRCFA(segmenter.config, seed=4)
        logits = model.predict_single(model.encode(network_input(frame, SIZE)))
        wanted = full_size_mask(logits, SIZE, SIZE)
        for _ in range(2):
            np.testing.assert_array_equal(segmenter(frame), wanted)
    found = evaluate(alone, EvalOptions(run.parent / "data"))
    assert found.backend == "eager (PyTorch, CPU, fp32, single frames)"
    assert wanted.max() < IGNORED


def test_a_bundles_single_frame_head_is_its_models(bundle):
    with Candidate(bundle("b0"), single=True).opened() as segmenter:
        assert segmenter.backend.endswith("single frames)")
        assert len(segmenter.classes) == 124


def test_what_is_no_run_and_backends_that_a_run_has_not_are_told(run, tmp_path):
    (tmp_path / "other.safetensors").write_bytes(b"x")
    with (
        pytest.raises(Damaged, match=naming(tmp_path / "other.safetensors")),
        Candidate(tmp_path / "other.safetensors").opened(),
    ):
        pass
    with (
        pytest.raises(Unsupported, match=naming(run, "--backend eager", "onnxruntime")),
        Candidate(run, "onnxruntime").opened(),
    ):
        pass
    with (
        pytest.raises(Unsupported, match=naming(run, "fp32", "fp16")),
        Candidate(run, precision="fp16").opened(),
    ):
        pass


def test_a_precision_chooses_among_the_bundles_graphs(bundle):
    with Candidate(bundle("b0"), "onnxruntime", precision="fp16").opened() as segmenter:
        assert "fp16" in segmenter.backend
