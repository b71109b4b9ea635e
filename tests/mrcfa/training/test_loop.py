"""Runs: they learn, they go on where they were killed, and bad input loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from naming import naming
from PIL import Image
from safetensors.torch import load_file

from mrcfa import cli, preset
from mrcfa.errors import AlreadyExists, Mismatch, MrcfaError, NotFound
from mrcfa.model.config import Method
from mrcfa.training.checkpoints import read_facts
from mrcfa.training.log import LOG
from mrcfa.training.loop import RunOptions, train
from mrcfa.training.recipe import Recipe
from mrcfa.training.runs import BEST, LAST
from mrcfa.video.sample import write_sample

SIZE = (64, 96)
QUICK = Recipe(iterations=4, batch=2, crop=SIZE, learning_rate=3e-4, warmup=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training") / "data"
    write_sample(folder, {"train": 2, "val": 1}, frames=6, size=SIZE)
    return folder


def config(**changes):
    return preset("vspw", "b0", **{"size": SIZE, "classes": 12, "depths": (1, 1, 1, 1), **changes})


def options(run, **changes):
    return RunOptions(run, **{"workers": 0, "validate_every": 4, "save_every": 2, **changes})


def lines(run):
    return [json.loads(line) for line in (run / LOG).read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run to its end, what it was told to show, and what it said is the best."""
    run, shown = tmp_path_factory.mktemp("finished") / "run", []
    with torch.enable_grad():
        best = train(data, config(), QUICK, options(run), progress=lambda *each: shown.append(each))
    return run, shown, best


def test_a_run_leaves_checkpoints_with_all_facts_and_a_log(finished):
    run, shown, best = finished
    assert best == run / BEST
    for name in (LAST, BEST):
        facts = read_facts(run / name)
        assert (facts.config, facts.recipe, facts.iteration) == (config(), QUICK, 4)
        assert facts.labels.names[0] == "road"
    log = lines(run)
    assert [line["iteration"] for line in log if "loss" in line] == [1, 2, 3, 4]
    (validation,) = (line for line in log if "miou" in line)
    assert 0 <= validation["miou"] <= 1
    assert [number for number, _ in shown] == [1, 2, 3, 4]
    assert len(list(run.glob("state.*"))) == 1
    page = (run / "report.html").read_text()
    assert "4 of 4 iterations, mIoU 0." in page
    assert page.count("data:image/png") == 1 + 3
    with Image.open(run / "curves.png") as curves:
        assert curves.width > 800


def four_fields(root):
    """One frame of four textured fields, which are wide enough for the coarsest grid."""
    noise = np.random.default_rng(0)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    mask = (2 * (y >= 32) + (x >= 32)).astype(np.uint8)
    image = (50 * mask[..., None] + noise.integers(0, 60, (*SIZE, 3))).astype(np.uint8)
    for kind, picture in (("origin", image), ("mask", mask)):
        (root / "data" / "one" / kind).mkdir(parents=True)
        Image.fromarray(picture).save(root / "data" / "one" / kind / "0.png")
    for split in ("train", "val"):
        (root / f"{split}.txt").write_text("one\n")
    (root / "labels.json").write_text('{"names": ["a", "b", "c", "d"]}')


@pytest.mark.parametrize(
    "method",
    [
        Method.MRCFA,
        pytest.param(Method.SEGFORMER, marks=pytest.mark.thorough),
        pytest.param(Method.FEATURE_PYRAMID, marks=pytest.mark.thorough),
    ],
)
def test_one_clip_is_learnt_by_heart(method, tmp_path):
    four_fields(tmp_path / "one")
    recipe = Recipe(
        iterations=80,
        batch=1,
        crop=SIZE,
        learning_rate=1e-3,
        head_factor=1,
        warmup=10,
        ratio=(1, 1),
        most_of_one_class=1,
        flip=0,
        brightness=0,
        contrast=(1, 1),
        saturation=(1, 1),
        hue=0,
        drop_path=0,
        dropout=0,
    )
    train(
        tmp_path / "one",
        config(classes=4, method=method, depths=(2, 2, 2, 2)),
        recipe,
        options(tmp_path / "run", validate_every=80, save_every=80),
    )
    (validation,) = (line for line in lines(tmp_path / "run") if "miou" in line)
    assert validation["single_miou"] > 0.97
    assert validation["miou"] > 0.97


def weights(run):
    return {**load_file(run / LAST), **load_file(next(run.glob("state.*")))}


def test_a_run_that_was_stopped_goes_on_bit_for_bit(data, tmp_path):
    recipe = replace(QUICK, iterations=6)
    train(data, config(), recipe, options(tmp_path / "whole", validate_every=6))

    class Stop(Exception):
        pass

    def stop(iteration, loss):
        if iteration == 5:  # one step after the last save
            raise Stop

    with pytest.raises(Stop):
        train(data, config(), recipe, options(tmp_path / "parts", validate_every=6), progress=stop)
    assert read_facts(tmp_path / "parts" / LAST).iteration == 4
    train(data, config(), recipe, options(tmp_path / "parts", validate_every=6, resume=True))
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []
    losses = [[x.get("loss") for x in lines(tmp_path / run)] for run in ("whole", "parts")]
    assert losses[0] == losses[1]


@pytest.mark.thorough
def test_kill_9_at_any_moment_loses_at_most_the_steps_since_the_last_save(data, tmp_path):
    words = "--backbone b0 --size 64x96 --crop 64x96 --batch 2 --iterations 500 --workers 0"
    command = [sys.executable, cli.__file__, "train", data, "-o", tmp_path / "run", *words.split()]
    command += ["--save-every", "1", "--validate-every", "500"]
    log = tmp_path / "run" / LOG
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        while not (log.is_file() and len(log.read_text().splitlines()) > 3):
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    done = read_facts(tmp_path / "run" / LAST).iteration
    assert done >= 2
    assert (tmp_path / "run" / f"state.{done}.safetensors").is_file()
    logged = len(log.read_text().splitlines())
    assert done >= logged - 1


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(
    data, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    real = torch.nn.functional.cross_entropy
    calls = []

    def breaking(*given, **named):
        calls.append(None)
        return real(*given, **named) * (float("nan") if len(calls) > 5 * 2 else 1)

    monkeypatch.setattr("mrcfa.training.trainee.F.cross_entropy", breaking)
    with pytest.raises(MrcfaError, match=naming("nan", 3, run / LAST, "--weights")) as error:
        train(data, config(), QUICK, options(run))
    assert len(re.findall(r"train_\d/", str(error.value))) == QUICK.batch
    facts = read_facts(run / LAST)
    assert facts.iteration == 2
    assert all(value.isfinite().all() for value in load_file(run / LAST).values())


@pytest.mark.parametrize(
    ("changes", "things"),
    [
        ({"recipe": replace(QUICK, batch=1)}, ("batch", 2, 1)),
        (
            {"config": config(keep=0.5, maa=False), "recipe": replace(QUICK, seed=3)},
            ("keep", 0.8, 0.5, "maa", True, False, "seed", 0, 3),
        ),
    ],
)
def test_resuming_with_other_settings_names_them(data, finished, changes, things):
    run, *_ = finished
    given = {"config": config(), "recipe": QUICK, **changes}
    with pytest.raises(Mismatch, match=naming(run, *things)) as error:
        train(data, given["config"], given["recipe"], options(run, resume=True))
    assert "iterations" not in str(error.value)  # which may grow


def test_a_folder_in_use_and_a_run_that_is_not_there_are_told(data, tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(AlreadyExists, match=naming(tmp_path, "mine", "-o")):
        train(data, config(), QUICK, options(tmp_path))
    with pytest.raises(NotFound, match=naming(tmp_path, LAST, "--resume")):
        train(data, config(), QUICK, options(tmp_path, resume=True))


def test_a_dataset_without_a_split_to_train_on_is_told(tmp_path):
    write_sample(tmp_path / "d", {"val": 1}, frames=1, size=SIZE)
    with pytest.raises(NotFound, match=naming("train.txt", "val")):
        train(tmp_path / "d", config(), QUICK, options(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_command_trains_and_says_where_the_best_is(data, command):
    words = "--backbone b0 --size 64x96 --crop 64x96 --batch 1 --iterations 1 --workers 0"
    code, out, err = command("train", data, "-o", "run", *words.split())
    assert code == 0
    assert re.search(naming("train_0", "train_1", 9), err)
    said = out.decode()
    assert re.search(r"\b1 iteration .* \d+\.\d\d s\b.* \d+%", said)
    assert re.search(naming("run/best.safetensors"), said)
    assert Path("run", BEST).is_file()
