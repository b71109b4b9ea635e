"""Two processes with half a batch each learn what one learns with the whole."""

import json
import os
import subprocess
import sys

import pytest
import torch
from naming import naming
from safetensors.torch import load_file
from typer.testing import CliRunner

from mrcfa import cli
from mrcfa.errors import InvalidValue
from mrcfa.training.log import LOG
from mrcfa.training.processes import joined
from mrcfa.training.runs import LAST
from mrcfa.video.sample import write_sample

WORDS = (
    "--backbone b0 --size 64x96 --crop 64x96 --iterations 1 --workers 0 --warmup 1 "
    "--learning-rate 1e-4 --drop-path 0 --dropout 0"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes") / "data"
    write_sample(folder, {"train": 2, "val": 1}, frames=4, size=(64, 96))
    return folder


def trained(data, run, processes, batch, *more):
    command = ["train", data, "-o", run, *WORDS.split(), "--batch", batch, *more]
    words = [str(word) for word in command]
    if processes == 1:  # this one
        with torch.enable_grad():
            answer = CliRunner().invoke(cli.app, words)
        assert answer.exit_code == 0, answer.output
        return run
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *start, cli.__file__, *words],
        capture_output=True,
        text=True,
        env=alone,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.thorough
def test_two_processes_with_synchronised_norms_equal_one(data, tmp_path):
    """Loss, running statistics and gradients: a tenth of them is AdamW's first moment.

    AdamW's steps themselves are not compared. They follow the sign even of a gradient that is zero
    but for rounding, such as that of a bias before a norm.
    """
    runs = [trained(data, tmp_path / str(count), count, 4) for count in (1, 2)]
    one, two = (json.loads((run / LOG).read_text().splitlines()[0])["loss"] for run in runs)
    assert two == pytest.approx(one, abs=1e-5)
    one, two = (load_file(run / "state.1.safetensors") for run in runs)
    moments = [name for name in one if name.endswith(".exp_avg")]
    assert len(moments) > 200
    for name in moments:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5, msg=name)
    one, two = (load_file(run / LAST) for run in runs)
    for name in ("fusion.norm.running_mean", "fusion.norm.running_var"):
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5, msg=name)


def test_a_batch_that_cannot_be_shared_is_told_before_the_processes_meet(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidValue, match=naming("batch", 3, 2)), joined(batch=3):
        pass


@pytest.mark.thorough
def test_two_processes_with_bf16_products_see_one_loss(data, tmp_path):
    """Norms over processes keep FP32 sums under autocast; the products' rounding alone is left."""
    runs = [trained(data, tmp_path / str(n), n, 2, "--precision", "bf16") for n in (1, 2)]
    one, two = (json.loads((run / LOG).read_text().splitlines()[0])["loss"] for run in runs)
    assert two == pytest.approx(one, rel=5e-3)
    for name, value in load_file(runs[1] / LAST).items():
        assert value.isfinite().all(), name
