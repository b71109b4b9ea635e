import json

from typer.testing import CliRunner

import cli
import mrcfa

run = CliRunner().invoke


def test_version_is_printed():
    assert run(cli.app, ["--version"]).stdout == f"mrcfa {mrcfa.__version__}\n"


def test_doctor_names_every_optional_package_and_how_to_get_it():
    answer = run(cli.app, ["doctor", "--json"])
    findings = {row["name"]: row for row in json.loads(answer.stdout)}
    assert {"processor", "GPU", "torch", "onnxruntime", "tensorrt_rtx", "nvcc"} <= findings.keys()
    assert findings["torch"]["found"].startswith("2.13")
    assert findings["tensorrt"]["remedy"] == 'pip install "mrcfa[tensorrt]"'
    assert answer.exit_code == 0


def test_doctor_prints_one_line_for_each_finding():
    lines = run(cli.app, ["doctor"]).stdout.splitlines()
    assert len(lines) == len(json.loads(run(cli.app, ["doctor", "--json"]).stdout))
