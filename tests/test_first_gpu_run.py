"""A stranger's first run: the page, the notebook with the same commands, and the issue form."""

import json
import os
import re
import sys
import tarfile
from importlib.metadata import metadata
from pathlib import Path

import pytest

import mrcfa
from mrcfa.machine import hardware

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-gpu-run.md"
NOTEBOOK = ROOT / "examples" / "gpu.ipynb"
BUNDLE = f"mrcfa-demo-{mrcfa.__version__}"
PIP = '#!/bin/sh\necho "pip $@" >> "$PIP_LOG"\n'


def commands_of_the_page() -> list[str]:
    lines = re.findall(r"^    (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [line.partition(" #")[0].strip() for line in lines]


def commands_of_the_notebook() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
    lines = re.findall(r"^ *!(.*)$", code, re.MULTILINE)
    return [line.replace("{BUNDLE}", BUNDLE).replace("{EXTRA}", "rtx") for line in lines]


def test_the_notebook_has_the_pages_commands_with_this_version():
    page = commands_of_the_page()
    assert [line for line in page if line not in commands_of_the_notebook()] == page[:1]  # venv
    names = re.findall(r"mrcfa-demo-[0-9.]*[0-9]", PAGE.read_text(encoding="utf-8"))
    assert set(names) == {BUNDLE}


def test_the_notebook_is_kept_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.thorough
def test_the_notebook_runs_and_says_what_a_gpu_would_have_run(bundle, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="notebook: not run (no nbclient)")
    nbclient = pytest.importorskip("nbclient", reason="notebook: not run (no nbclient)")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pip").write_text(PIP)
    (tmp_path / "bin/pip").chmod(0o755)
    (tmp_path / "clone/examples").mkdir(parents=True)
    with tarfile.open(tmp_path / "clone" / f"{BUNDLE}.tar", "w") as archive:
        archive.add(bundle("b0"), BUNDLE)
    places = (tmp_path / "bin", Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, places)))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_LOG", str(tmp_path / "pip.log"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    folder = {"metadata": {"path": str(tmp_path / "clone/examples")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()

    report = json.loads((tmp_path / "clone/selftest.json").read_text())
    assert report["passed"], report["verdict"]
    lines = (tmp_path / "clone/bench.json").read_text().splitlines()
    rows = [json.loads(line) for line in lines if '"kind": "row"' in line]
    assert any(row["outcome"] == "ran" for row in rows)
    *_, last = (cell for cell in notebook.cells if cell.cell_type == "code")
    printed = "".join(output.text for output in last.outputs)
    assert report["verdict"] in printed
    if not hardware.gpus():
        for check in ("CUDA driver", "GPU", "GPU at work"):
            assert f"\n{check}: not run (" in printed
    installed = (tmp_path / "pip.log").read_text().splitlines()
    assert installed[0] == "pip install ."
    (extras,) = re.findall(r"^pip install \.\[(.*)\]$", installed[1])
    assert set(extras.split(",")) <= set(metadata("mrcfa").get_all("Provides-Extra"))


def test_the_issue_form_is_one_and_asks_for_the_files_of_the_page():
    yaml = pytest.importorskip("yaml", reason="issue form: not run (no pyyaml)")
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/gpu-report.yml").read_text("utf-8"))
    assert form.keys() >= {"name", "description", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert {field["type"] for field in fields} <= {"input", "textarea"}
    assert all(field["attributes"]["label"] for field in fields)
    labels = {field["attributes"]["label"] for field in fields}
    assert labels >= set(re.findall(r"--json (\S+)", "\n".join(commands_of_the_page())))
