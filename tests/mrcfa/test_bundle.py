import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from mrcfa.bundle import MANIFEST, Bundle, Engine, new_bundle
from mrcfa.errors import MrcfaError


@pytest.fixture
def copy(bundle, tmp_path):
    """A bundle that a test may damage."""
    return shutil.copytree(bundle("b0"), tmp_path / "copy")


def edit(path, **changes):
    content = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**content, **changes}))


def test_a_bundle_reads_back_as_it_was_written(bundle):
    manifest = Bundle.open(bundle("b0")).manifest
    assert manifest.config.backbone == "b0"
    assert manifest.frame == (96, 160)
    assert len(manifest.classes) == len(manifest.palette) == len(set(manifest.palette)) == 124
    assert manifest.weights["origin"] == "b0.pth"
    assert all(check["passed"] for checks in manifest.parity.values() for check in checks)
    assert manifest.to_json() == type(manifest).from_json(manifest.to_json(), None).to_json()


def test_every_file_is_listed_with_its_hash(bundle):
    opened = Bundle.open(bundle("b0"))
    on_disk = {entry.name for entry in opened.path.iterdir()} - {MANIFEST}
    assert on_disk == set(opened.manifest.files)
    for name in on_disk:
        assert opened.file(name).is_file()


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_changed_or_missing_file_is_named(copy, damage):
    file = copy / "decoder.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:100])
    with pytest.raises(MrcfaError, match=r"decoder\.onnx is (not the file|missing)"):
        Bundle.open(copy).file("decoder.onnx")


def test_a_newer_format_asks_for_an_update(copy):
    edit(copy, format=99)
    with pytest.raises(MrcfaError, match=r"format 99, newer .* update mrcfa"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "a\0b", "\ud800"])
def test_a_path_outside_the_directory_is_refused(copy, name):
    edit(copy, files={name: {"sha256": "0", "bytes": 1}})
    with pytest.raises(MrcfaError, match="leaves the directory"):
        Bundle.open(copy)


def test_a_link_that_leaves_the_directory_is_refused(copy, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"x")
    (copy / "decoder.onnx").unlink()
    (copy / "decoder.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MrcfaError, match="leaves the directory"):
        Bundle.open(copy)


def test_every_field_of_the_manifest_is_missed_by_name(bundle, tmp_path):
    content = json.loads((bundle("b0") / MANIFEST).read_text())
    for field in content:
        rest = {key: value for key, value in content.items() if key != field}
        (tmp_path / MANIFEST).write_text(json.dumps(rest))
        if field == "parity":  # the one with a default
            continue
        with pytest.raises(MrcfaError, match="damaged"):
            Bundle.open(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": 5},
        {"files": {"a": 5}},
        {"frame": [float("inf"), 3]},
        {"graphs": []},
        {"config": 1},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_kind_is_damage(copy, changes):
    edit(copy, **changes)
    with pytest.raises(MrcfaError, match="is damaged"):
        Bundle.open(copy)


def test_a_manifest_nested_beyond_reason_is_damage(tmp_path):
    (tmp_path / MANIFEST).write_text("[" * 200_000)
    with pytest.raises(MrcfaError, match="is damaged"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '{"format": "x"}'])
def test_a_manifest_that_is_none_is_one_sentence(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(MrcfaError, match=r"manifest\.json (is damaged|has format)"):
        Bundle.open(tmp_path)


def test_a_directory_without_manifest_is_no_bundle(tmp_path):
    with pytest.raises(MrcfaError, match="is no bundle"):
        Bundle.open(tmp_path)


def test_a_new_bundle_replaces_only_a_bundle_and_only_by_force(copy, tmp_path):
    manifest = Bundle.open(copy).manifest
    with pytest.raises(MrcfaError, match="--force"), new_bundle(copy):
        pass
    with new_bundle(copy, force=True) as (scratch, finish):
        (scratch / "x").write_text("x")
        finish(manifest)
    assert set(Bundle.open(copy).manifest.files) == {"x"}

    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.tex").write_text("precious")
    with pytest.raises(MrcfaError, match="is no bundle"), new_bundle(other, force=True):
        pass
    assert (other / "chapter1.tex").read_text() == "precious"


def test_leaving_without_finishing_leaves_nothing(tmp_path):
    with new_bundle(tmp_path / "b") as (scratch, _):
        (scratch / "x").write_text("x")
    assert not list(tmp_path.iterdir())


WRITER = """
import sys, time
from pathlib import Path
from mrcfa.bundle import Bundle, new_bundle
manifest = Bundle.open(sys.argv[1]).manifest
while True:
    with new_bundle(sys.argv[2], force=True) as (scratch, finish):
        print("started", flush=True)
        for number in range(20):
            (scratch / f"part{number}").write_bytes(bytes(200_000))
        finish(manifest)
"""


def test_kill_at_any_moment_leaves_no_bundle_or_a_whole_one(bundle, tmp_path):
    rng = random.Random(0)
    for attempt in range(8):
        target = tmp_path / f"b{attempt}"
        command = [sys.executable, "-c", WRITER, str(bundle("b0")), str(target)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.2))
            os.kill(process.pid, signal.SIGKILL)
        if target.exists():
            whole = Bundle.open(target)
            assert len([whole.file(name) for name in whole.manifest.files]) == 20


def engine(**changes):
    base = Engine("rtx", "1.7", (75,), "fp16", None, "e1.engine", "d1.engine", None)
    return replace(base, **changes)


def test_an_engine_is_added_and_one_of_the_same_name_replaced(copy):
    first = Bundle.open(copy).with_engine(engine(), {"e1.engine": b"1", "d1.engine": b"1"})
    other = engine(compute_capabilities=(86, 89), encoder="e2.engine", decoder="d2.engine")
    both = first.with_engine(other, {"e2.engine": b"2", "d2.engine": b"2"})
    newer = engine(encoder="e3.engine", decoder="d3.engine")
    both.with_engine(newer, {"e3.engine": b"3", "d3.engine": b"3"})

    names = {item.name: item.encoder for item in Bundle.open(copy).manifest.engines}
    assert names == {"rtx fp16 sm86+sm89": "e2.engine", "rtx fp16 sm75": "e3.engine"}
    assert Bundle.open(copy).file("d3.engine").read_bytes() == b"3"
    assert not (copy / "e1.engine").exists()


def test_a_full_disk_leaves_the_bundle_as_it_was(copy, monkeypatch):
    before = {entry.name: entry.read_bytes() for entry in copy.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mrcfa.bundle.os.fsync", full)
    with pytest.raises(MrcfaError, match="No space left on device"):
        Bundle.open(copy).with_engine(engine(), {"e1.engine": b"1", "d1.engine": b"1"})
    assert {entry.name: entry.read_bytes() for entry in copy.iterdir()} == before
