"""Exporting what `mrcfa train` wrote: the checkpoint brings everything along."""

import json

import pytest
import torch
from naming import names
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mrcfa import load_weights, preset
from mrcfa.bundle import Bundle
from mrcfa.data.demo import WEIGHTS
from mrcfa.data.world.labels import WORLD
from mrcfa.model.methods import build_model
from mrcfa.training.checkpoints import Facts, publish, read_facts, save_model
from mrcfa.training.recipe import Recipe


def checkpoint(path, **changes):
    config = preset(
        "vspw", "b0", **{"size": (64, 96), "classes": 12, "depths": (1, 1, 1, 1), **changes}
    )
    save_model(path, build_model(config, seed=3), Facts(config, WORLD, Recipe(), 9))
    return path


@pytest.fixture
def exported(monkeypatch, bundle):
    """Config, weights and labels of each bundle that would have been exported."""
    made = []

    def export_bundle(config, path, weights, seed, options, *_):
        made.append((config, weights, options.labels))
        return Bundle.open(bundle("b0"))

    monkeypatch.setattr("mrcfa.export.exporter.export_bundle", export_bundle)
    return made


def test_a_checkpoint_needs_no_other_flag(tmp_path, command, exported):
    path = checkpoint(tmp_path / "best.safetensors", references=(4, 2), keep=0.5)
    code, _, err = command("export", "--weights", path)
    assert (code, err) == (0, "")
    assert exported == [(read_facts(path).config, path, WORLD)]


def test_another_size_is_told_and_taken(tmp_path, command, exported):
    path = checkpoint(tmp_path / "best.safetensors")
    code, _, err = command("export", "--weights", path, "--size", "128x192")
    assert code == 0
    assert names(err, "(64, 96)", "(128, 192)")
    assert exported[0][0].size == (128, 192)


@pytest.mark.parametrize(
    ("words", "things"),
    [
        (["--backbone", "b1"], ("b0", "b1")),
        (["--dataset", "cityscapes"], ("vspw", "cityscapes")),
        (["--labels", "two.txt"], (12, 2)),
    ],
)
def test_a_flag_that_contradicts_is_refused(words, things, tmp_path, command, exported):
    (tmp_path / "two.txt").write_text("road\ncar\n")
    code, _, err = command("export", "--weights", checkpoint(tmp_path / "b.safetensors"), *words)
    assert code == 2
    assert names(err, "b.safetensors", words[0], *things)
    assert not exported


def test_the_weights_in_the_box_are_exported_by_a_flag(command, exported, demo):
    code, _, err = command("export", "--demo", "--size", "96x160", "--frame", "163x289")
    assert code == 0
    assert "mrcfa sample" in err
    manifest = Bundle.open(demo("fp32")).manifest
    assert exported == [(manifest.config, WEIGHTS, WORLD)]
    assert (manifest.classes, manifest.palette) == (WORLD.names, WORLD.colours)
    assert manifest.weights.origin == "demo.safetensors"


def test_the_weights_in_the_box_and_others_exclude_each_other(tmp_path, command):
    path = checkpoint(tmp_path / "mine.safetensors")
    code, _, err = command("export", "--demo", "--weights", path)
    assert (code, err.count("\n")) == (2, 1)
    assert names(err, "--demo", "mine.safetensors")


def test_published_weights_are_half_as_large_and_the_same_model(tmp_path):
    path = checkpoint(tmp_path / "best.safetensors")
    publish(path, tmp_path / "half.safetensors")
    assert (tmp_path / "half.safetensors").stat().st_size < 0.52 * path.stat().st_size
    assert read_facts(tmp_path / "half.safetensors") == read_facts(path)
    model, other = (build_model(read_facts(path).config) for _ in range(2))
    load_weights(model, path)
    load_weights(other, tmp_path / "half.safetensors")
    torch.testing.assert_close(other.value.weight, model.value.weight, rtol=1e-3, atol=1e-6)
    assert other.value.weight.dtype == torch.float32


def rewritten(path, change):
    """The checkpoint with other facts, as a stranger could write them."""
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["mrcfa"])
    change(facts)
    save_file(load_file(path), path, {"mrcfa": json.dumps(facts)})
    return path


@pytest.mark.parametrize(
    ("part", "changes", "things"),
    [
        ("config", {"keep": 8.8}, ("keep", 8.8)),
        ("config", {"depths": [2, 2, 100_000, 2]}, ("depths",)),
        ("config", {"depths": [60, 60, 60, 60]}, ("config",)),
        ("config", {"kernels": [[10_001]] * 4}, ("kernels",)),
        ("config", {"size": [64, 10**15]}, ("size",)),
        ("labels", {"names": ["road", "car"]}, ("names", 12)),
        ("labels", {"names": ["road"] * 12}, ("name",)),
        ("labels", {"colours": [[10**9, 0, 0]] * 12}, ("colour", 255)),
        ("labels", {"colours": [[0, 0, 0]] * 10**5}, ("b.safetensors",)),
        ("labels", {"values": [float("nan")] * 12}, ("values",)),
        ("recipe", {"learning_rate": float("nan")}, ("nan",)),
    ],
)
def test_facts_that_no_model_can_have_are_told_before_one_is_built(
    tmp_path, command, monkeypatch, part, changes, things
):
    path = rewritten(
        checkpoint(tmp_path / "b.safetensors"), lambda facts: facts[part].update(changes)
    )
    monkeypatch.setattr("mrcfa.export.exporter.build_model", None)
    code, _, err = command("export", "--weights", path)
    assert code == 2
    assert "Traceback" not in err
    assert names(err, "b.safetensors", *things)


def test_a_variant_that_is_left_out_is_told_and_is_no_failure(command, monkeypatch, bundle):
    def export_bundle(*given):
        given[-1]("fp16 is left out")
        return Bundle.open(bundle("b0"))

    monkeypatch.setattr("mrcfa.export.exporter.export_bundle", export_bundle)
    code, _, err = command("export", "--backbone", "b0", "-o", "b")
    assert code == 0
    assert "mrcfa: fp16 is left out" in err.splitlines()
