import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from naming import naming
from tomorrow import add_unknown_fields

from mrcfa.bundle import EXPECTED, MANIFEST, Bundle, write_bundle
from mrcfa.bundle.manifest import Device, Engine
from mrcfa.data.synthetic import drifting_clip
from mrcfa.errors import (
    AlreadyExists,
    Damaged,
    InvalidValue,
    NotFound,
    Unsupported,
    WrongState,
)
from mrcfa.machine.files import CannotWrite
from mrcfa.model.config import Backbone
from mrcfa.model.input_format import RGB
from mrcfa.stream.stream import Stream


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
    assert manifest.weights.origin == "b0.pth"
    assert all(check["passed"] for each in manifest.variants.values() for check in each.parity)
    assert manifest.streams == 1
    assert manifest.to_json() == type(manifest).from_json(manifest.to_json(), None).to_json()


def test_every_file_is_listed_with_its_hash(bundle):
    opened = Bundle.open(bundle("b0"))
    on_disk = {entry.name for entry in opened.path.iterdir()} - {MANIFEST}
    assert on_disk == set(opened.manifest.files)
    for name in on_disk:
        assert opened.file(name).is_file()


@pytest.mark.parametrize(
    ("damage", "kind"), [("flip", Damaged), ("cut", Damaged), ("gone", NotFound)]
)
def test_a_changed_or_missing_file_is_named(copy, damage, kind):
    file = copy / "decoder.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:100])
    with pytest.raises(kind, match=naming(file)):
        Bundle.open(copy).file("decoder.onnx")


@pytest.mark.parametrize(
    ("version", "things"),
    [
        (3, (3, 2, "update")),
        (1, (1, 2, "export")),
        ("two", ("'two'", "export")),
        (2.0, (2.0, "export")),
        (True, (True, "export")),
    ],
)
def test_another_format_is_refused_with_what_to_do(copy, version, things):
    edit(copy, format=version)
    with pytest.raises(Unsupported, match=naming(copy / MANIFEST, *things)):
        Bundle.open(copy)


def test_unknown_fields_are_ignored_at_every_level(copy):
    before = Bundle.open(copy).with_engine(engine(), {"e1.engine": b"1", "d1.engine": b"1"})
    assert add_unknown_fields(copy / MANIFEST) > 50
    manifest = Bundle.open(copy).manifest
    for field in ("config", "variants", "files", "engines", "weights", "classes"):
        assert _plain(getattr(manifest, field)) == _plain(getattr(before.manifest, field))


def _plain(value):
    """Without what a check of parity carries along: those are free-form."""
    return re.sub(r", 'of_tomorrow': {'deep': \[1, None\]}", "", repr(value))


def test_the_whole_config_is_in_the_manifest(bundle, monkeypatch):
    """A table that changes later must not make an old bundle's reference unloadable."""
    monkeypatch.setattr(Backbone, "kernels", ((9,), (9,), (9,), (9,)))
    monkeypatch.setattr(Backbone, "widths", (8, 16, 40, 64))
    config = Bundle.open(bundle("b0")).config
    assert config.kernels == ((3,), (5,), (5,), (5,))
    assert config.widths == (32, 64, 160, 256)


def test_streams_that_the_tensors_do_not_have_are_refused(copy):
    edit(copy, streams=4)
    with pytest.raises(Damaged, match=naming(copy / MANIFEST, "image", 4)):
        Bundle.open(copy)


def test_expected_masks_are_the_references_of_the_built_in_clip(bundle):
    opened = Bundle.open(bundle("b0"))
    with np.load(opened.file(EXPECTED)) as expected:
        masks = expected["masks"]
    assert (masks.shape, masks.dtype) == ((12, 96, 160), np.uint8)
    stream = Stream(opened.path, "onnxruntime:cpu")
    found = [stream(frame) for frame in drifting_clip(12, (96, 160))]
    assert (masks == found).mean() > 0.9999


@pytest.mark.parametrize(
    ("device", "precision", "name"),
    [
        (Device.CPU, None, "fp32"),
        (Device.CPU, "fp32", "fp32"),
        (Device.CPU, "fp16", "fp16"),
        (Device.GPU, None, "fp16"),
        (Device.GPU, "fp32", "fp32-gpu"),
        (Device.GPU, "int8", None),
    ],
)
def test_a_device_gets_the_variant_that_was_laid_out_for_it(bundle, device, precision, name):
    opened = Bundle.open(bundle("b0"))
    variants = dict(opened.manifest.variants)
    variants["fp32-gpu"] = replace(variants["fp16"], precision="fp32")
    opened = replace(opened, manifest=replace(opened.manifest, variants=variants))
    assert opened.find_variant(device, precision) == name


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "a\0b", "\ud800"])
def test_a_path_outside_the_directory_is_refused(copy, name):
    edit(copy, files={name: {"sha256": "0", "bytes": 1}})
    with pytest.raises(Damaged, match=naming(copy / MANIFEST, repr(name))):
        Bundle.open(copy)


def test_a_link_that_leaves_the_directory_is_refused(copy, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"x")
    (copy / "decoder.onnx").unlink()
    (copy / "decoder.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Damaged, match=naming(copy / MANIFEST, "decoder.onnx")):
        Bundle.open(copy)


def test_every_field_of_the_manifest_is_missed_by_name(bundle, tmp_path):
    content = json.loads((bundle("b0") / MANIFEST).read_text())
    for field in content:
        rest = {key: value for key, value in content.items() if key != field}
        (tmp_path / MANIFEST).write_text(json.dumps(rest))
        if field == "input":  # older bundles have none
            assert Bundle.open(tmp_path).manifest.input == RGB
            continue
        with pytest.raises(Damaged, match=naming(tmp_path / MANIFEST, field)):
            Bundle.open(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": 5},
        {"files": {"a": 5}},
        {"frame": [float("inf"), 3]},
        {"variants": []},
        {"variants": {}},
        {"variants": {"fp32": 7}},
        {"config": 1},
        {"output": "heat"},
        {"streams": "1"},
        {"engines": {}},
        {"classes": [5]},
        {"palette": [[0, 0]]},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_kind_is_damage(copy, changes):
    edit(copy, **changes)
    with pytest.raises(Damaged, match=naming(copy / MANIFEST)):
        Bundle.open(copy)


def test_a_manifest_nested_beyond_reason_is_damage(tmp_path):
    (tmp_path / MANIFEST).write_text("[" * 200_000)
    with pytest.raises(Damaged, match=naming(tmp_path / MANIFEST)):
        Bundle.open(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, Damaged) for text in ("", "{", "[]", "null")),
        *((text, Unsupported) for text in ('{"format": 1}', '{"format": "x"}')),
    ],
)
def test_a_manifest_that_is_none_is_one_sentence(tmp_path, text, kind):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(kind, match=naming(tmp_path / MANIFEST)):
        Bundle.open(tmp_path)


def test_a_directory_without_manifest_is_no_bundle(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path, MANIFEST, "mrcfa export")):
        Bundle.open(tmp_path)


@pytest.mark.parametrize(
    ("kind", "command"),
    [("tar", "tar xf"), ("zip", "unzip"), ("gztar", "tar xf"), ("xztar", "tar xf")],
)
def test_an_archive_in_place_of_a_folder_gets_the_command_that_unpacks_it(tmp_path, kind, command):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / MANIFEST).write_text("{}")
    made = shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path, "bundle")
    with pytest.raises(InvalidValue, match=naming(f"{command} {made}")):
        Bundle.open(made)


def test_a_new_bundle_replaces_only_a_bundle_and_only_by_force(copy, tmp_path):
    manifest = Bundle.open(copy).manifest

    def fill(scratch):
        (scratch / "x").write_text("x")
        return manifest

    with pytest.raises(AlreadyExists, match=naming(copy, "--force", "-o")):
        write_bundle(copy, fill)
    write_bundle(copy, fill, force=True)
    assert set(Bundle.open(copy).manifest.files) == {"x"}

    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.tex").write_text("precious")
    with pytest.raises(AlreadyExists, match=naming(other, "-o")) as error:
        write_bundle(other, fill, force=True)
    assert "--force" not in str(error.value)
    assert (other / "chapter1.tex").read_text() == "precious"


def test_an_export_that_breaks_off_leaves_nothing(tmp_path):
    def fill(scratch):
        (scratch / "x").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / "b", fill)
    assert not list(tmp_path.iterdir())


EXPORTS = """
import sys
from pathlib import Path
from mrcfa.bundle import Bundle, write_bundle
manifest = Bundle.open(sys.argv[1]).manifest

def fill(scratch):
    for number in range(20):
        (scratch / f"part{number}").write_bytes(bytes(200_000))
    return manifest

while True:
    write_bundle(Path(sys.argv[2]), fill, force=True)
    print("written", flush=True)
"""
BUILDS = """
import sys
from itertools import count
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Engine
for number in count():
    names = [f"{part}.{number}.engine" for part in ("encoder", "decoder")]
    engine = Engine("rtx", "1.7", (75,), "fp16", "fp16", None, *names)
    Bundle.open(sys.argv[2]).with_engine(engine, {name: bytes(200_000) for name in names})
    print("written", flush=True)
"""


@pytest.mark.parametrize(
    "writer",
    [EXPORTS, pytest.param(BUILDS, marks=pytest.mark.thorough)],
    ids=["export --force", "build"],
)
def test_kill_at_any_moment_leaves_a_whole_bundle_that_the_next_writer_cleans(
    writer, bundle, copy, tmp_path
):
    rng = random.Random(0)
    for _ in range(4):
        command = [sys.executable, "-c", writer, str(bundle("b0")), str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.1))
            os.kill(process.pid, signal.SIGKILL)
        whole = Bundle.open(copy)
        assert [whole.file(name) for name in whole.manifest.files]
    variant = whole.manifest.variants["fp16"]
    write_bundle(tmp_path / "next", lambda scratch: whole.manifest)
    whole.with_variant("fp16", variant, {})
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_writers_that_know_nothing_of_each_other_lose_nothing(copy):
    opened = [Bundle.open(copy) for _ in range(5)]

    def add(number):
        names = f"e{number}.engine", f"d{number}.engine"
        added = engine(compute_capabilities=(80 + number,), encoder=names[0], decoder=names[1])
        opened[number].with_engine(added, dict.fromkeys(names, bytes(1000)))

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(add, range(4)))
    fp16 = opened[4].manifest.variants["fp16"]
    opened[4].with_variant("int8", replace(fp16, precision="int8"), {"int8.onnx": b"1"})
    now = Bundle.open(copy)
    assert {each.compute_capabilities for each in now.manifest.engines} == {
        (80 + number,) for number in range(4)
    }
    assert "int8" in now.manifest.variants
    assert all(now.file(name) for name in now.manifest.files)


def test_a_variant_that_another_process_added_meanwhile_is_not_replaced(copy):
    first, second = Bundle.open(copy), Bundle.open(copy)
    variant = replace(first.manifest.variants["fp16"], precision="int8")
    first.with_variant("int8", variant, {"int8.onnx": b"1"})
    with pytest.raises(WrongState, match=naming(copy, "int8")):
        second.with_variant("int8", variant, {"int8.onnx": b"2"})
    assert Bundle.open(copy).file("int8.onnx").read_bytes() == b"1"


def engine(**changes):
    base = Engine("rtx", "1.7", (75,), "fp16", "fp16", None, "e1.engine", "d1.engine")
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

    monkeypatch.setattr("mrcfa.machine.files.os.fsync", full)
    with pytest.raises(CannotWrite, match=naming(copy, "No space left on device")):
        Bundle.open(copy).with_engine(engine(), {"e1.engine": b"1", "d1.engine": b"1"})
    assert {entry.name: entry.read_bytes() for entry in copy.iterdir()} == before
