import json

import pytest
from naming import names
from typer.testing import CliRunner

import mrcfa
from mrcfa import cli
from mrcfa.bundle import Bundle

run = CliRunner().invoke


def test_version_is_printed():
    assert run(cli.app, ["--version"]).stdout == f"mrcfa {mrcfa.__version__}\n"


def test_doctor_names_every_optional_package_and_how_to_get_it_in_a_line_each():
    answer = run(cli.app, ["doctor", "--json"])
    findings = {row["name"]: row for row in json.loads(answer.stdout)}
    assert {"processor", "GPU", "torch", "onnxruntime", "tensorrt_rtx", "nvcc"} <= findings.keys()
    assert findings["torch"]["found"].startswith("2.13")
    assert names(findings["tensorrt"]["remedy"], 'pip install ".[tensorrt]"')
    assert answer.exit_code == 0
    assert len(run(cli.app, ["doctor"]).stdout.splitlines()) == len(findings)


def test_export_says_that_weights_are_random_and_what_it_wrote(tmp_path, bundle, monkeypatch):
    """The export itself is tested elsewhere; here it is its words."""
    source = Bundle.open(bundle("b0"))
    told = {}

    def export_bundle(config, path, weights, seed, options, *rest):
        told.update(config=config, path=path, options=options)
        return source

    monkeypatch.setattr("mrcfa.export.exporter.export_bundle", export_bundle)
    words = (
        "export --backbone b0 --size 96x160 --frame 108x192 --references 6,3 --keep 0.4 --no-sar"
    )
    answer = run(cli.app, [*words.split(), "-o", str(tmp_path / "b")])
    assert answer.exit_code == 0
    assert names(answer.stderr, "random", "seed 0")
    assert "fp16 pixels with the same class" in answer.stdout
    assert f"wrote {tmp_path / 'b'}" in answer.stdout.replace("\n", "")
    config = told["config"]
    assert (config.references, config.keep, config.sar, config.maa) == ((6, 3), 0.4, False, True)
    assert told["options"].frame == (108, 192)


def test_inspect_shows_tensors_state_cost_and_files(bundle):
    text = run(cli.app, ["inspect", str(bundle("b0"))]).stdout
    for part in (
        *("query_32", "state per stream", "multiply-adds", "encoder.fp16.onnx", "stay FP32"),
        *("variant fp32: fp32 for CPUs, ort_cpu", "variant fp16: fp16 for GPUs, plain"),
        *("preset vspw, 124 classes", "classes: wall, ceiling, door"),
    ):
        assert part in text
    content = json.loads(run(cli.app, ["inspect", str(bundle("b0")), "--json"]).stdout)
    assert content["format"] == 2
    assert content["config"]["backbone"] == "b0"


BAD = {
    "export --backbone b9": ["--backbone", "b9", *(f"b{number}" for number in range(6))],
    "export --output heat": ["--output", "heat", "mask", "logits"],
    "export --labels nowhere.json": ["nowhere.json"],
    "export --seed one": ["--seed"],
    "export --colour red": ["--colour", "bt601", "bt709"],
    "export --colour bt709": ["--colour", "--input nv12"],
    "export --input bgr --range full": ["--range", "--input nv12", "bgr"],
    "export --input yuyv": ["--input", "rgb", "bgr", "nv12"],
    "export --input nv12 --frame 107x189": ["107x189", "108x190"],
    "build x --flavour lean": ["--flavour", "lean", "auto", "tensorrt", "rtx"],
    "build x --plugin maybe": ["--plugin", "maybe", "auto", "never", "always"],
    "paint": ["paint"],
    "run": ["bundle"],
    "export --dataset ade": ["ade", "vspw", "cityscapes"],
    "export --size 480x853": ["480x853", "480x864"],
    "export --size large": ["large", "HxW"],
    "export --keep 2": ["keep", 2],
    "export --references 3,x": ["3,x", "9,6,3"],
    "export --variants fp4": ["fp4", "fp32", "fp16", "fp32-gpu"],
    "export --variants fp8": ["fp8", "mrcfa quantize"],
    "export --weights nowhere.pth": ["nowhere.pth"],
    "inspect nowhere": ["nowhere"],
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_sentence_and_exit_code_two(words, command, tmp_path):
    code, out, err = command(*words.split())
    assert (code, out) == (2, b"")
    assert names(err, *BAD[words])
    assert err.count("\n") == err.count("mrcfa: ")
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]


@pytest.mark.parametrize("words", [("-h",), ("run", "-h")])
def test_h_is_help(words, command):
    assert command(*words) == command(*words[:-1], "--help")
    assert command(*words)[0] == 0


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("export --frame 864x480", "--frame 480x864"),
        ("export --size 864x480", "--size 480x864"),
        ("export --dataset cityscapes --frame 1920x1080", "--frame 1080x1920"),
    ],
)
def test_a_size_across_the_usual_one_is_pointed_out(words, remedy, command):
    _, _, err = command(*words.split(), "--variants", "none")
    assert names(err, remedy)
    _, _, err = command(*words.split()[:-1], remedy.split()[1], "--variants", "none")
    assert not names(err, "HxW")
