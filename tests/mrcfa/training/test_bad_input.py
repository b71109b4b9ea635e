"""Through the command: data, disks and settings that a run cannot do with, a sentence each."""

import errno
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from mrcfa.training.checkpoints import read_facts
from mrcfa.training.runs import BEST, LAST

NAMES = ("road", "car", "tree")
FLAGS = "--backbone b0 --size 64x96 --crop 64x96 --batch 1 --warmup 1 --workers 0 -o run"
WORDS = FLAGS.split()


@pytest.fixture(autouse=True)
def _gradients():
    with torch.enable_grad():
        yield


def write_video(root, name, masks, frames=12, size=(64, 96)):
    """Frames of noise; `masks` by frame number."""
    noise = np.random.default_rng(0)
    for kind in ("origin", "mask"):
        (root / "data" / name / kind).mkdir(parents=True)
    for number in range(frames):
        image = noise.integers(0, 256, (*size, 3)).astype(np.uint8)
        Image.fromarray(image).save(root / "data" / name / "origin" / f"{number}.png")
    for number, mask in masks.items():
        Image.fromarray(mask).save(root / "data" / name / "mask" / f"{number}.png")


def striped(size=(64, 96), classes=3):
    return (np.mgrid[: size[0], : size[1]][1] * classes // size[1]).astype(np.uint8)


@pytest.fixture
def data(tmp_path):
    """Three classes, and a mask for every other frame."""
    root = tmp_path / "data"
    write_video(root, "long", {number: striped() for number in range(0, 12, 2)})
    (root / "labels.json").write_text(json.dumps({"names": NAMES}))
    for split in ("train", "val"):
        (root / f"{split}.txt").write_text("long\n")
    return root


def test_a_dataset_with_nothing_to_remark_on_is_trained_without_a_word(data, command):
    code, _, err = command("train", data, *WORDS, "--iterations", 1)
    assert (code, err) == (0, "")


def test_no_masks_at_all_are_told(data, command):
    for mask in (data / "data" / "long" / "mask").iterdir():
        mask.unlink()
    code, _, err = command("train", data, *WORDS)
    assert code == 2
    assert "is not complete: it has no masks" in err
    assert not Path("run").exists()


def test_a_class_that_never_occurs_mixed_sizes_and_short_videos_are_told_once(data, command):
    short = {0: striped((32, 64), 2)}
    write_video(data, "short", short, frames=2, size=(32, 64))
    (data / "train.txt").write_text("short\n")
    write_video(data, "other", {0: striped(classes=2)})
    (data / "train.txt").write_text("short\nother\n")
    code, _, err = command("train", data, *WORDS, "--iterations", 2)
    assert code == 0
    assert err.splitlines() == [
        "mrcfa: frames have 2 sizes (32x64, 64x96, …) and are all resized to --size",
        "mrcfa: short: too short for a reference 9 frames back; the first frame serves instead",
        "mrcfa: tree never occurs in the 2 masks and will not be learnt",
    ]


def test_a_value_outside_the_labels_is_told_with_its_file(data, command):
    mask = data / "data" / "long" / "mask" / "4.png"
    Image.fromarray(np.full((64, 96), 9, np.uint8)).save(mask)
    code, _, err = command("train", data, *WORDS)
    assert code == 2
    assert f"the mask {mask} has the value 9" in err
    assert not Path("run").exists()


def test_a_loss_that_is_no_number_names_the_clip_and_keeps_the_checkpoint(
    data, command, monkeypatch
):
    real, calls = torch.nn.functional.cross_entropy, []

    def breaking(*given, **named):
        calls.append(None)
        return real(*given, **named) * (float("nan") if len(calls) > 5 * 2 else 1)

    monkeypatch.setattr("mrcfa.training.trainee.F.cross_entropy", breaking)
    code, _, err = command("train", data, *WORDS, "--iterations", 4, "--save-every", 1)
    assert code == 2
    assert "the loss is nan at iteration 3 (clips long/" in err
    assert read_facts(Path("run", LAST)).iteration == 2


def test_a_full_disk_is_survived_and_the_last_good_checkpoint_stays_whole(
    data, command, monkeypatch
):
    real, refused = Path.write_bytes, []

    def full(path, content):
        if LAST in path.name and len(refused) < 1 and Path("run", LAST).exists():
            refused.append(path)
            real(path, content[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    words = (*WORDS, "--iterations", 3, "--save-every", 1, "--validate-every", 3)
    code, _, err = command("train", data, *words)
    assert code == 0
    assert err == (
        f"mrcfa: cannot write {Path('run', LAST)}: No space left on device; the run goes on, and "
        f"{Path('run', LAST)} stays as it was\n"
    )
    assert len(refused) == 1
    assert read_facts(Path("run", LAST)).iteration == 3
    assert [path.name for path in Path("run").glob("state.*")] == ["state.3.safetensors"]


def test_a_disk_that_is_full_at_the_end_is_told_and_the_run_can_be_finished(
    data, command, monkeypatch
):
    real = Path.write_bytes

    def full(path, content):
        if LAST in path.name and Path("run", LAST).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    words = (*WORDS, "--iterations", 2, "--save-every", 1, "--validate-every", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        code, _, err = command("train", data, *words)
    assert code == 2
    assert "No space left on device; make room and finish the run with --resume" in err
    assert read_facts(Path("run", LAST)).iteration == 1
    code, _, err = command("train", data, *words, "--resume")
    assert (code, err) == (0, "")
    assert read_facts(Path("run", LAST)).iteration == 2


def test_other_settings_than_the_runs_are_all_named(data, command):
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    code, _, err = command("train", data, *WORDS, "--iterations", 5, "--seed", 2, "--resume")
    assert code == 2
    assert "recipe iterations 1 and not 5, recipe seed 0 and not 2; resume it with" in err


def test_a_checkpoint_of_other_classes_gets_new_classifiers_or_is_refused(data, command):
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    (data / "labels.json").write_text(json.dumps({"names": [*NAMES, "person"]}))
    more = ("--iterations", 1, "--weights", Path("run", BEST), "-o", "second")
    code, _, err = command("train", data, *WORDS, *more)
    assert code == 0
    said = "run/best.safetensors has nothing that fits linear_pred, classify: that starts anew"
    assert said in err
    code, _, err = command("eval", "run", data)
    assert code == 2
    assert f"run has 3 classes and {data} 4; evaluate it on its own dataset" in err


def test_segformer_takes_no_references(data, command):
    words = ("--method", "segformer", "--references", "3")
    code, _, err = command("train", data, *WORDS, *words)
    assert (code, err) == (
        2,
        "mrcfa: segformer segments every frame by itself; leave --references out\n",
    )


def test_a_profile_says_how_a_step_is_spent(data, command):
    code, _, err = command("train", data, *WORDS, "--iterations", 3, "--profile", 2)
    assert code == 0
    assert err.count("a step takes ") == 1
    for part in ("waiting for data", "forward", "backward", "optimizer"):
        assert re.search(rf"{part} \d+\.\d+ s \(\d+%\)", err)


def test_compiling_leaves_the_checkpoints_names(data, command, monkeypatch):
    """With dynamo's tracing alone: making kernels takes minutes."""
    compiled, real = [], torch.compile

    def traced(module):
        compiled.append(module)
        return real(module, backend="eager")

    monkeypatch.setattr(torch, "compile", traced)
    for name, more in (("run", ()), ("fast", ("--compile",))):
        words = (*WORDS, "--method", "segformer", "--iterations", 1, *more, "-o", name)
        code, _, err = command("train", data, *words)
        assert code == 0, err
    assert len(compiled) == 1
    run, fast = (load_file(Path(name, LAST)) for name in ("run", "fast"))
    assert {name: each.shape for name, each in run.items()} == {
        name: each.shape for name, each in fast.items()
    }


def test_tensorboard_gets_what_the_log_gets_where_it_is_installed(data, command, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            assert (folder, purge_step) == ("run", 1)

        def add_scalar(self, name, value, step):
            written.append((name, step))

        def close(self):
            written.append("closed")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    code, _, err = command("train", data, *WORDS, "--iterations", 2)
    assert (code, err) == (0, "")
    assert written[-1] == "closed"
    assert {name for name, _ in written[:-1]} >= {"loss", "rate", "miou", "single_miou"}
    assert [step for name, step in written[:-1] if name == "loss"] == [1, 2]
