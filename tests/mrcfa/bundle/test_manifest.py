"""Limits on the claims of manifests, labels and graphs, and on the text printed from them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graph_cases import REFUSED_GRAPHS, damage_graph, put
from manifest_cases import CASES, applied
from naming import naming

from mrcfa import Stream
from mrcfa.bundle import EXPECTED, MANIFEST, Bundle
from mrcfa.bundle.inspection import summary
from mrcfa.bundle.manifest import Manifest
from mrcfa.data.labels import read_labels
from mrcfa.errors import Damaged, InvalidValue
from mrcfa.selftest.expected import Expected

ATTACK = Path(__file__).parents[2] / "attack_manifests.py"


@pytest.fixture
def manifest(bundle):
    return json.loads((bundle("b0") / MANIFEST).read_text())


@pytest.fixture
def copy(bundle, tmp_path):
    return shutil.copytree(bundle("b0"), tmp_path / "copy")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_a_manifest_may_claim_what_its_cases_allow(case, manifest, tmp_path):
    (tmp_path / MANIFEST).write_bytes(applied(case, manifest).encode())
    if case["refused"] is None:
        assert summary(Bundle.open(tmp_path))
        return
    with pytest.raises(Damaged, match=naming(tmp_path / MANIFEST, case["refused"])):
        Bundle.open(tmp_path)


def test_a_manifest_larger_than_memory_is_not_read(tmp_path):
    with (tmp_path / MANIFEST).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Damaged, match=naming(tmp_path / MANIFEST)):
        Bundle.open(tmp_path)


def test_what_a_manifest_names_cannot_write_to_the_terminal(command, copy, manifest):
    manifest["classes"][0] = manifest["weights"]["origin"] = "\x1b[31mred\x07\u202e"
    manifest["variants"]["fp32"]["note"] = "\x9b2J"
    (copy / MANIFEST).write_text(json.dumps(manifest))
    code, out, _ = command("inspect", copy)
    shown = out.decode()
    assert code == 0
    assert "\\x1b[31mred\\x07\\u202e" in shown
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)
    assert Stream(copy, "onnxruntime:cpu").classes[0] == "\\x1b[31mred\\x07\\u202e"


def test_names_in_a_labels_file_cannot_write_to_the_terminal(tmp_path):
    file = tmp_path / "labels.json"
    file.write_text(json.dumps({"names": ["\x1b[2Jroad", "car\u202e"]}))
    assert read_labels(file).names == ("\\x1b[2Jroad", "car\\u202e")


@pytest.mark.parametrize(
    "content",
    [
        '{"names": ["a", "b"], "colours": [' + "[0, 0, 0]," * 200_000 + "[0, 0, 0]]}",
        '{"names": ["a", "b"], "colours": [[' + "0," * 100_000 + "0], [0, 0, 0]]}",
        '{"names": ["a", "b"], "values": [1e400, 2]}',
        '{"names": ["a", "b"], "values": [' + "9" * 100_000 + ", 2]}",
        "a\n" * 1_000_000,
        "road\n" + "\x1b" * 2000,
    ],
    ids=["two megabytes", "a long colour", "no float", "a long number", "lines", "a long name"],
)
def test_a_labels_file_that_claims_too_much_is_refused_in_a_short_sentence(tmp_path, content):
    file = tmp_path / "labels.json"
    file.write_text(content)
    with pytest.raises((Damaged, InvalidValue), match=naming(file)) as error:
        read_labels(file)
    assert len(str(error.value)) < 1000


def test_a_labels_file_without_end_is_read_as_far_as_one_may_be_long():
    with pytest.raises(Damaged, match=naming("/dev/zero")):
        read_labels(Path("/dev/zero"))


@pytest.mark.parametrize("change", REFUSED_GRAPHS, ids=lambda change: change.__name__)
def test_a_graph_that_is_not_whole_or_may_not_end_is_refused(copy, change):
    damage_graph(copy, change)
    things = naming(copy / "decoder.onnx", REFUSED_GRAPHS[change])
    with pytest.raises(Damaged, match=things):
        Stream(copy, "onnxruntime:cpu")


@pytest.mark.parametrize(
    "content",
    [b"", b"onnx", b"\x3a\xff\xff\xff\xff\x0f", b"\x0b\x0c", b"\x3a\x7f" + b"\x80" * 127, b"\0\0"],
    ids=["empty", "text", "cut short", "a group", "no end of a number", "field 0"],
)
def test_what_is_no_graph_is_refused_before_a_runtime_sees_it(copy, content):
    put(copy, "encoder.onnx", content)
    with pytest.raises(Damaged, match=naming(copy / "encoder.onnx")):
        Stream(copy, "onnxruntime:cpu")


def test_an_encoder_that_is_the_decoder_is_refused_by_name(copy):
    put(copy, "encoder.onnx", (copy / "decoder.onnx").read_bytes())
    with pytest.raises(Damaged, match=naming(copy / "encoder.onnx", "image")):
        Stream(copy, "onnxruntime:cpu")


def test_a_file_that_changes_after_its_hash_was_taken_is_not_loaded(copy, clip, monkeypatch):
    (frame,) = clip(1, 96, 160)
    whole = Stream(copy, "onnxruntime:cpu")(frame)
    read = Bundle.read

    def read_and_swap(self, name):
        content = read(self, name)
        (self.path / name).write_bytes(b"something else")
        return content

    monkeypatch.setattr(Bundle, "read", read_and_swap)
    np.testing.assert_array_equal(Stream(copy, "onnxruntime:cpu")(frame), whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"depths": [100_000, 1, 1, 1]},
        {"widths": [10**9, 1, 1, 1]},
        {"kernels": [[10_001], [3], [3], [3]]},
        {"references": [10**9]},
        {"references": list(range(1000, 0, -1))},
        {"affinity_channels": 10**9},
        {"size": [10**9 * 32, 64]},
    ],
    ids=str,
)
def test_a_model_beyond_all_bounds_is_damage(manifest, changes):
    manifest["config"].update(changes)
    (field,) = changes
    with pytest.raises(Damaged, match=field):
        Manifest.from_json(json.dumps(manifest), Path(MANIFEST))


@pytest.mark.parametrize(
    "layers",
    ["[]", "5", '{"encoder": 5}', '{"encoder": [{}]}', "[" * 100_000, '{"encoder": ["x"]}', "\xff"],
)
def test_a_list_of_layers_that_is_none_is_damage(copy, manifest, layers):
    engine = {
        **{"flavour": "rtx", "tensorrt": "1", "compute_capabilities": [75], "precision": "fp16"},
        **{"variant": "fp16", "plugin": None, "encoder": "e", "decoder": "d", "layers": "l.json"},
    }
    (copy / MANIFEST).write_text(json.dumps({**manifest, "engines": [engine]}))
    put(copy, "l.json", layers.encode("latin-1"))
    with pytest.raises(Damaged, match=naming("l.json")):
        summary(Bundle.open(copy))


@pytest.mark.parametrize(
    "content",
    [
        {"masks": np.zeros((1, 96, 160), np.uint8), "frames": np.array([10**12])},
        {"masks": np.zeros((1, 96, 160), np.uint8), "frames": np.array([-1])},
        {"masks": np.zeros((1, 96, 160), np.uint8), "frames": np.array([0.5])},
        {"masks": np.zeros((1, 96, 160), np.uint8), "frames": np.array(3)},
        {"masks": np.zeros((1, 96, 160), np.uint8), "rest": np.zeros(100_000, np.uint8)},
        {"frames": np.arange(3)},
    ],
    ids=["a clip without end", "before it", "between two", "a scalar", "a bomb", "no masks"],
)
def test_expected_masks_that_claim_too_much_are_damage(copy, content, tmp_path, monkeypatch):
    monkeypatch.setattr("mrcfa.selftest.expected.EXPECTED_BYTES", 50_000)
    np.savez_compressed(tmp_path / "made.npz", **content)
    put(copy, EXPECTED, (tmp_path / "made.npz").read_bytes())
    with pytest.raises(Damaged, match=naming(copy / EXPECTED)):
        Expected.of(Bundle.open(copy))


@pytest.mark.thorough
def test_mutated_manifests_end_in_a_sentence_soon_and_without_much_memory(bundle):
    done = subprocess.run(
        [sys.executable, str(ATTACK), str(bundle("b0")), "300"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
