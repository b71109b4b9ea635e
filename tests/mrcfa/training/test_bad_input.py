"""Through the command: data, disks and settings that a run cannot do with, a sentence each."""

import errno
import json
import os
import re
import signal
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from naming import names
from PIL import Image
from safetensors.torch import load_file

from mrcfa.console.progress import training
from mrcfa.machine.files import replaced
from mrcfa.training.checkpoints import read_facts
from mrcfa.training.log import LOG, entries_of
from mrcfa.training.runs import BEST, LAST

pytestmark = pytest.mark.usefixtures("one_block")
NAMES = ("road", "car", "tree")
FLAGS = "--backbone b0 --size 64x96 --crop 64x96 --batch 1 --warmup 1 --workers 0 -o run"
WORDS = FLAGS.split()


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


def test_a_run_begins_with_what_it_learns_from_and_ends_with_the_miou(data, command):
    code, out, err = command("train", data, *WORDS, "--iterations", 1)
    assert code == 0
    train, val, classes, begins, validated = err.splitlines()
    assert names(train, "train", 1, "12 frames", 6)
    assert names(val, "val", 1, "12 frames", 6)
    assert names(classes, *NAMES, 6)
    assert names(begins, "MRCFA", "b0", "64x96", "cpu", "fp32", 1)
    miou = f"{read_facts(Path('run', BEST)).score:.4f}"
    assert names(validated, "mIoU", miou)
    assert names(out.decode().splitlines()[-1], "run/best.safetensors", "mIoU", miou)


def test_without_a_terminal_there_is_a_line_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, *range(2, 200, 2)])  # two seconds a step, from iteration 40 on
    monkeypatch.setattr("mrcfa.console.progress.monotonic", lambda: next(clock))
    with training(100) as show:
        for iteration in range(41, 101):
            show(iteration, 0.5)
    first, second = capsys.readouterr().err.splitlines()
    assert names(first, 45, 100, "0.500", "2.00 s", "0:01:50")
    assert names(second, 75, 100, "0:00:50")


def test_no_masks_at_all_are_told(data, command):
    for mask in (data / "data" / "long" / "mask").iterdir():
        mask.unlink()
    code, _, err = command("train", data, *WORDS)
    assert code == 2
    assert names(err.splitlines()[-1], "long", "train.txt", "masks")
    assert not Path("run").exists()


def test_a_class_that_never_occurs_mixed_sizes_and_short_videos_are_told_once(data, command):
    short = {0: striped((32, 64), 2)}
    write_video(data, "short", short, frames=2, size=(32, 64))
    (data / "train.txt").write_text("short\n")
    write_video(data, "other", {0: striped(classes=2)})
    (data / "train.txt").write_text("short\nother\n")
    code, _, err = command("train", data, *WORDS, "--iterations", 2)
    assert code == 0
    for things in (
        ("frames have 2 sizes", "32x64", "64x96", "--size"),
        ("short", "reference 9 frames"),
        ("never occur", "tree", 2),
    ):
        assert sum(names(line, *things) for line in err.splitlines()) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_mask_of_another_size_is_one_sentence_whoever_reads_it(data, command, workers):
    mask = data / "data" / "long" / "mask" / "4.png"
    for path in mask.parent.iterdir():
        Image.fromarray(striped((32, 96))).save(path)
    code, _, err = command("train", data, *WORDS, "--workers", workers)
    assert code == 2
    assert "Traceback" not in err
    assert names(err.splitlines()[-1], "mask", "size")
    assert str(mask.parent) in err.splitlines()[-1]


def test_a_worker_that_is_killed_is_one_sentence(data, command, monkeypatch):
    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("mrcfa.training.clips.Clips.__getitem__", killed)
    code, _, err = command("train", data, *WORDS, "--workers", 1)
    assert code == 2
    assert "Traceback" not in err
    assert names(err.splitlines()[-1], "--workers")


def test_a_run_that_failed_before_its_first_save_can_be_started_again(data, command):
    mask = data / "data" / "long" / "mask" / "4.png"
    Image.fromarray(striped((32, 96))).save(mask)
    assert command("train", data, *WORDS, "--iterations", 40)[0] == 2
    assert Path("run", LOG).is_file()
    Image.fromarray(striped()).save(mask)
    with replaced(Path("run", LAST)) as part:
        half_written = part
    Path("run", LAST).rename(half_written)  # as kill -9 in the first save leaves it
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    assert [entry["iteration"] for entry in entries_of(Path("run"))] == [1, 1]
    assert not half_written.exists()


@pytest.mark.parametrize(
    ("file", "things"),
    [(LAST, ("--resume", "-o")), (BEST, ("--weights", "-o")), ("mine.txt", ("mine.txt", "-o"))],
)
def test_a_folder_with_a_checkpoint_or_other_files_is_left_alone(data, command, file, things):
    Path("run").mkdir()
    Path("run", file).touch()
    code, _, err = command("train", data, *WORDS, "--iterations", 1)
    assert code == 2
    assert names(err.splitlines()[-1], "run", *things)
    assert [path.name for path in Path("run").iterdir()] == [file]


def test_a_value_outside_the_labels_is_told_with_its_file(data, command):
    mask = data / "data" / "long" / "mask" / "4.png"
    Image.fromarray(np.full((64, 96), 9, np.uint8)).save(mask)
    code, _, err = command("train", data, *WORDS)
    assert code == 2
    assert names(err.splitlines()[-1], mask, "value 9")
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
    assert names(err.splitlines()[-1], "nan", "iteration 3", "long", Path("run", LAST))
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
    (refusal,) = (line for line in err.splitlines() if os.strerror(errno.ENOSPC) in line)
    assert names(refusal, Path("run", LAST))
    assert len(refused) == 1
    assert read_facts(Path("run", LAST)).iteration == 3
    assert [path.name for path in Path("run").glob("state.*")] == ["state.3.safetensors"]


@pytest.mark.thorough
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
    assert names(err.splitlines()[-1], os.strerror(errno.ENOSPC), "--resume")
    assert read_facts(Path("run", LAST)).iteration == 1
    assert command("train", data, *words, "--resume")[0] == 0
    assert read_facts(Path("run", LAST)).iteration == 2


def test_a_bare_resume_goes_on_with_the_runs_own_settings_and_may_extend_it(data, command):
    words = ("--iterations", 1, "--no-maa", "--validate-every", 2, "--seed", 3)
    assert command("train", data, *WORDS, *words)[0] == 0
    before = read_facts(Path("run", LAST))
    bare = ("train", data, "-o", "run", "--workers", 0, "--resume")
    code, out, _ = command(*bare, "--iterations", 3)
    assert code == 0
    assert names(out.decode(), "3 iterations")
    after = read_facts(Path("run", LAST))
    assert (after.iteration, after.config) == (3, before.config)
    assert after.recipe == replace(before.recipe, iterations=3)
    validations = [entry["iteration"] for entry in entries_of(Path("run")) if "miou" in entry]
    assert validations == [1, 2, 3]
    assert command(*bare)[0] == 0  # it has nothing to do, and says where the best is
    code, _, err = command(*bare, "--iterations", 2)
    assert code == 2
    assert names(err, "run", 3, "--iterations")


def test_flags_that_contradict_the_resumed_run_are_all_named(data, command):
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    flags = ("--seed", 2, "--no-maa", "--backbone", "b1", "--resume")
    code, _, err = command("train", data, "-o", "run", *flags)
    assert code == 2
    assert names(err.splitlines()[-1], "seed", 0, 2, "maa", True, False, "b0", "b1")


@pytest.mark.parametrize("name", [LAST, "state.1.safetensors"])
def test_a_damaged_save_is_told(data, command, name):
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    content = Path("run", name).read_bytes()
    Path("run", name).write_bytes(content[: len(content) // 2])
    code, _, err = command("train", data, "-o", "run", "--resume")
    assert code == 2
    assert "Traceback" not in err
    assert names(err.splitlines()[-1], Path("run", name))


def interrupting(monkeypatch, place, after):
    """Ctrl-C in the nth call of a function."""
    module, _, name = place.rpartition(".")
    real, calls = getattr(import_module(module), name), []

    def called(*given, **named):
        calls.append(None)
        if len(calls) == after:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given, **named)

    monkeypatch.setattr(place, called)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_ctrl_c_saves_and_says_how_the_run_goes_on_bit_for_bit(data, command, monkeypatch, workers):
    words = (*WORDS, "--iterations", 4, "--workers", workers)
    assert command("train", data, *words, "-o", "whole")[0] == 0
    with monkeypatch.context() as patch:
        interrupting(patch, "mrcfa.training.trainee.summed_loss", 2 * 3)  # the third step's last
        code, _, err = command("train", data, *words)
    assert code == 130
    assert "Traceback" not in err
    assert names(err.splitlines()[-1], 3, 4, f"mrcfa train {data} -o run --resume")
    assert read_facts(Path("run", LAST)).iteration == 3
    assert command("train", data, "-o", "run", "--resume")[0] == 0
    whole, parts = (load_file(Path(name, LAST)) for name in ("whole", "run"))
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []


@pytest.mark.thorough
def test_ctrl_c_in_a_validation_loses_no_step_and_the_validation_is_made_up_for(
    data, command, monkeypatch
):
    words = (*WORDS, "--iterations", 2, "--validate-every", 1)
    with monkeypatch.context() as patch:
        interrupting(patch, "mrcfa.training.validation.read_image", 14)  # in the second one
        assert command("train", data, *words)[0] == 130
    assert read_facts(Path("run", LAST)).iteration == 2
    assert command("train", data, "-o", "run", "--resume")[0] == 0
    kinds = ["loss" if "loss" in entry else "miou" for entry in entries_of(Path("run"))]
    assert kinds == ["loss", "miou", "loss", "miou"]


def test_ctrl_c_before_the_first_save_leaves_the_folder_free(data, command, monkeypatch):
    with monkeypatch.context() as patch:
        interrupting(patch, "mrcfa.training.loop.load_weights", 1)
        words = (*WORDS, "--weights", data / "no.pth")
        assert command("train", data, *words)[0] == 130
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0


def test_a_checkpoint_of_other_classes_gets_new_classifiers_or_is_refused(data, command):
    assert command("train", data, *WORDS, "--iterations", 1)[0] == 0
    (data / "labels.json").write_text(json.dumps({"names": [*NAMES, "person"]}))
    more = ("--iterations", 1, "--weights", Path("run", BEST), "-o", "second")
    code, _, err = command("train", data, *WORDS, *more)
    assert code == 0
    things = ("run/best.safetensors", "linear_pred", "classify")
    assert any(names(line, *things) for line in err.splitlines())
    code, _, err = command("eval", "run", data)
    assert code == 2
    assert names(err, "run", "3 classes", data, 4)


def test_segformer_takes_no_references(data, command):
    words = ("--method", "segformer", "--references", "3")
    code, _, err = command("train", data, *WORDS, *words)
    assert code == 2
    assert names(err, "segformer", "--references")
    assert err.count("\n") == 1


def test_a_profile_says_how_a_step_is_spent(data, command):
    code, _, err = command("train", data, *WORDS, "--iterations", 3, "--profile", 2)
    assert code == 0
    assert err.count("a step takes ") == 1
    for part in ("waiting for data", "forward", "backward", "optimizer"):
        assert re.search(rf"{part} \d+\.\d+ s \(\d+%\)", err)


@pytest.mark.thorough
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
    assert code == 0, err
    assert written[-1] == "closed"
    assert {name for name, _ in written[:-1]} >= {"loss", "rate", "miou", "single_miou"}
    assert [step for name, step in written[:-1] if name == "loss"] == [1, 2]
