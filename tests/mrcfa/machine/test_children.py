"""Processes that mrcfa starts: nothing that lies in the current folder runs in them."""

import shutil
from pathlib import Path

import pytest

from mrcfa.bundle import Bundle
from mrcfa.selftest.cpp import cpp_line
from mrcfa.selftest.line import Outcome
from mrcfa.selftest.processes import python
from mrcfa.video.sample import FEW, write_sample

SHADOWED = ("mrcfa", "multiprocessing", "numpy", "json", "signal", "concurrent")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A current folder with modules of known names, and what shows that one of them ran."""
    ran, folder = tmp_path / "ran", tmp_path / "received"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit(9)\n")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # Python 3.10 does not know it
    monkeypatch.chdir(folder)
    return ran


@pytest.mark.parametrize(
    "start", [("-c", "import mrcfa, json"), ("-m", "mrcfa.selftest.trials", "none")]
)
def test_a_child_imports_nothing_from_the_current_folder(hostile, start):
    python(*start)
    assert not hostile.exists()


def test_the_processes_that_draw_samples_import_nothing_from_the_current_folder(
    hostile, monkeypatch
):
    monkeypatch.setattr("mrcfa.video.sample.usable_cores", lambda: 2)
    write_sample(Path("sample"), {"train": FEW + 1}, frames=1, size=(32, 32))
    assert len(list(Path("sample/data").iterdir())) == FEW + 1
    assert not hostile.exists()


def test_selftest_starts_no_program_from_the_current_folder(bundle, tmp_path, monkeypatch):
    folder = shutil.copytree(bundle("b0"), tmp_path / "received")
    tool = folder / "build/cpp/mrcfa-segment"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    tool.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("mrcfa.selftest.processes.CLONE", tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert cpp_line(Bundle.open("."), None).outcome is Outcome.NOT_RUN
    assert not (tmp_path / "ran").exists()
