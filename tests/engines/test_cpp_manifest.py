"""Bundles that C++ cannot open end in Python's sentences, and no manifest breaks the reader.

This is the one place that compares sentences of the two languages. Other tests of C++ look for the
thing that an error names.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cpp_library import edit, with_engines, write
from fake_gpu import Driver, fake_tensorrt
from graph_cases import REFUSED_GRAPHS, damage_graph, put
from manifest_cases import CASES, applied
from tomorrow import add_unknown_fields

from mrcfa import Stream
from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.flavours import PLUGIN_NAME, PLUGIN_VARIABLE
from mrcfa.bundle.manifest import STATE
from mrcfa.errors import MrcfaError
from mrcfa.machine.hardware import Gpu

FUZZED = 100_000
ENGINE = {
    "flavour": "rtx",
    "tensorrt": "1.7",
    "compute_capabilities": [75],
    "precision": "int8",
    "variant": "int8",
    "plugin": None,
    "encoder": "encoder.onnx",
    "decoder": "decoder.onnx",
}


def listing(folder: Path, name: str) -> None:
    """The manifest lists a file of that name."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    edit(folder, files={**files, name: {"sha256": "0" * 64, "bytes": 1}})


def without(folder: Path, field: str) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    del content[field]
    write(folder / MANIFEST, json.dumps(content))


def describe(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    variants = json.loads((folder / MANIFEST).read_text())["variants"]
    change(variants["fp32"]["decoder"])
    edit(folder, variants=variants)


def layout(folder: Path, **changes: Any) -> None:
    variants = json.loads((folder / MANIFEST).read_text())["variants"]
    variants["fp32"].update(changes)
    edit(folder, variants=variants)


def method(folder: Path, name: Any) -> None:
    config = json.loads((folder / MANIFEST).read_text())["config"]
    edit(folder, config={**config, "method": name})


def linked_away(folder: Path) -> None:
    (folder / "decoder.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "decoder.onnx").symlink_to(folder.parent / "elsewhere.onnx")


def packed(folder: Path, kind: str) -> None:
    """An archive has the folder's place and name."""
    whole = folder.with_name("whole")
    folder.rename(whole)
    (whole / MANIFEST).rename(whole / "moved")
    shutil.make_archive(str(whole), kind, whole, "moved")
    (made,) = folder.parent.glob("whole.*")
    made.rename(folder)


def changed(file: Path) -> None:
    content = file.read_bytes()
    write(file, content[:-1] + bytes([content[-1] ^ 1]))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no manifest": lambda path: (path / MANIFEST).unlink(),
    **{
        f"a {kind} in place of the folder": lambda path, kind=kind: packed(path, kind)
        for kind in ("tar", "zip", "gztar", "bztar", "xztar")
    },
    "a file that is no archive": lambda path: [packed(path, "tar"), write(path, b"ustar")],
    "a newer format": lambda path: edit(path, format=3),
    "an older format": lambda path: edit(path, format=1),
    "a format of text": lambda path: edit(path, format="one's"),
    "a format of null": lambda path: edit(path, format=None),
    **{
        f"no {field}": lambda path, field=field: without(path, field)
        for field in (
            *("format", "config", "streams", "frame", "output", "variants", "classes", "palette"),
            *("weights", "files", "engines"),
        )
    },
    "a graph without a file": lambda path: describe(path, lambda graph: graph.pop("file")),
    "a file that is no text": lambda path: describe(path, lambda graph: graph.update(file=5)),
    "no variants": lambda path: edit(path, variants={}),
    "a variant that is no object": lambda path: edit(path, variants={"fp32": 5}),
    "a device that is none": lambda path: layout(path, device="tpu"),
    "a precision that is no text": lambda path: layout(path, precision=32),
    "a method that nobody knows": lambda path: method(path, "tomorrow's"),
    "a method that is no text": lambda path: method(path, 5),
    "streams that the tensors do not have": lambda path: edit(path, streams=4),
    "no streams": lambda path: edit(path, streams=0),
    "streams that are no number": lambda path: edit(path, streams="1"),
    "a frame of nothing": lambda path: edit(path, frame=[0, 5]),
    "a frame with a negative side": lambda path: edit(path, frame=[-1, 5]),
    "a frame of one side": lambda path: edit(path, frame=[96]),
    "a frame that is too large": lambda path: edit(path, frame=[96, 10**6]),
    "NV12 of an odd size": lambda path: edit(
        path, frame=[107, 160], input={"layout": "nv12", "matrix": "bt709", "range": "full"}
    ),
    "a layout that nobody knows": lambda path: edit(path, input={"layout": "yuv"}),
    "a layout of nothing": lambda path: edit(path, input=None),
    "a matrix that nobody knows": lambda path: edit(path, input={"layout": "nv12", "matrix": "x"}),
    "NV12 without a range": lambda path: edit(path, input={"layout": "nv12", "matrix": "bt601"}),
    "BGR with a range": lambda path: edit(path, input={"layout": "bgr", "range": "full"}),
    "a colour that is too bright": lambda path: edit(path, palette=[[0, 0, 256]]),
    "a colour of two levels": lambda path: edit(path, palette=[[0, 0]]),
    "a colour that is no list": lambda path: edit(path, palette=[5]),
    "a class that is no text": lambda path: edit(path, classes=[5]),
    "a type that no graph has": lambda path: describe(
        path, lambda graph: graph["inputs"][0].update(dtype="float64")
    ),
    "a shape with a hole": lambda path: describe(
        path, lambda graph: graph["inputs"][0].update(shape=[1, 0, 5])
    ),
    "a shape beyond any memory": lambda path: describe(
        path, lambda graph: graph["inputs"][0].update(shape=[1, 2**20, 2**20])
    ),
    "weights that are neither random nor not": lambda path: edit(
        path, weights={"origin": "x", "sha256": None, "random": "no"}
    ),
    "an engine of a variant that is not there": lambda path: edit(path, engines=[ENGINE]),
    "a path upwards": lambda path: listing(path, "../encoder.onnx"),
    "an absolute path": lambda path: listing(path, "/etc/passwd"),
    "the parent": lambda path: listing(path, ".."),
    "no name": lambda path: listing(path, ""),
    "a quoted path": lambda path: listing(path, "it's/\\x"),
    "a link to elsewhere": linked_away,
    "a file that is not listed": lambda path: edit(path, files={}),
    "a missing file": lambda path: (path / "decoder.onnx").unlink(),
    "a file cut short": lambda path: write(path / "encoder.onnx", b"onnx"),
    "a changed file": lambda path: changed(path / "decoder.onnx"),
    **{
        f"a graph changed by {change.__name__}": partial(damage_graph, change=change)
        for change in REFUSED_GRAPHS
    },
    "an encoder that is the decoder": lambda path: put(
        path, "encoder.onnx", (path / "decoder.onnx").read_bytes()
    ),
    "a graph that is none": lambda path: put(path, "encoder.onnx", b"\x3a\x7f" + b"\x80" * 127),
}


@dataclass(frozen=True)
class Refused:
    """A bundle that the backend cannot open, and what it is asked for."""

    damage: Callable[[Path], object]
    backend: str = "onnxruntime:cpu"
    precision: str | None = None


def intact(path: Path) -> None:
    """The bundle is fine; what is asked of it is not."""


REFUSED = {
    **{name: Refused(damage) for name, damage in DAMAGES.items()},
    "graphs that were not exported": Refused(intact, precision="int8"),
    "no engine": Refused(intact, "tensorrt"),
    "no engine of that precision": Refused(with_engines, "tensorrt", "int8"),
    "no engine of that name": Refused(with_engines, "tensorrt:rtx"),
    "engines of another GPU": Refused(
        lambda path: with_engines(path, compute_capabilities=[86, 89]), "tensorrt"
    ),
    "engines of another version": Refused(
        lambda path: with_engines(path, tensorrt="10.13.2"), "tensorrt"
    ),
    "engines of another major version": Refused(
        lambda path: with_engines(path, tensorrt="11.1.0", version_compatible=True), "tensorrt"
    ),
    "a plugin library that is not there": Refused(
        lambda path: with_engines(path, plugin=PLUGIN_NAME), "tensorrt", "fp16"
    ),
    "an engine of other tensors": Refused(
        lambda path: with_engines(path, encoder="decoder.fp16.onnx"), "tensorrt", "fp16"
    ),
    "an engine cut short": Refused(
        lambda path: write(with_engines(path) / "encoder.fp16.onnx", b"plan"), "tensorrt"
    ),
}


@pytest.fixture
def same_gpu(monkeypatch):
    """Python's fake GPU, as C++ has it."""
    driver = Driver("Fake RTX")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(driver, "tensorrt", "10.3.0"))
    monkeypatch.setattr("mrcfa.machine.hardware.gpus", lambda: [Gpu(driver.device_name, driver.sm)])
    monkeypatch.setenv(PLUGIN_VARIABLE, "/nowhere/libmrcfa_plugin.so")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_opened_meets_the_sentence_that_python_has_for_it(
    case, request, copy, same_gpu
):
    asked = REFUSED[case]
    asked.damage(copy)
    with pytest.raises(MrcfaError) as error:
        Stream(copy, asked.backend, precision=asked.precision)
    on_gpu = asked.backend.startswith("tensorrt")
    segment = request.getfixturevalue("fake_gpu" if on_gpu else "segment")
    precision = () if asked.precision is None else ("--precision", asked.precision)
    done = segment(copy, "--backend", asked.backend, *precision)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"mrcfa-segment: {error.value}\n"


def test_a_manifest_may_claim_in_cpp_what_it_may_in_python(build, bundle, tmp_path):
    valid = json.loads((bundle("b0") / MANIFEST).read_text())
    texts = [applied(case, valid) for case in CASES]
    done = subprocess.run(
        [build / "mrcfa-fuzz", tmp_path],
        input="\n".join(texts) + "\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for case, text, sentence in zip(CASES, texts, done.stdout.splitlines(), strict=True):
        (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
        assert bool(sentence) == (case["refused"] is not None), (case["what"], sentence)
        if not sentence:
            continue
        with pytest.raises(MrcfaError) as error:
            Bundle.open(tmp_path)
        if case.get("words", not case.get("parser")):
            assert sentence == str(error.value), case["what"]


def test_fields_that_nobody_knows_are_ignored_at_every_level(segment, copy, clip):
    frames = clip(3, 96, 160)
    before = segment(copy, frames=frames)
    assert add_unknown_fields(copy / MANIFEST) > 50
    after = segment(copy, frames=frames)
    assert (after.returncode, after.stdout) == (0, before.stdout), after.stderr


def test_classes_of_ones_own_have_their_names_and_cannot_write_to_the_terminal(segment, copy):
    rest = json.loads((copy / MANIFEST).read_text())["classes"][3:]
    names = ["road", "parked car", "Bäume \x1b[2J\x9b\u202e🚗\r\n"]
    edit(copy, classes=[*names, *rest])
    shown = ("road", "parked car", r"Bäume \x1b[2J\x9b\u202e🚗\x0d\x0a")
    assert Stream(copy).classes[:3] == shown
    assert ", ".join(shown) in segment(copy, "--info").stdout.decode()


def small_manifest(bundle: Path) -> dict[str, Any]:
    """All that the reader looks at and little of each, so that 100,000 of them are read in time."""
    content = json.loads((bundle / MANIFEST).read_text())
    fields = ("format", "config", "streams", "frame", "output", "weights")
    kept = {name: content[name] for name in fields}
    kept["config"]["classes"] = 2
    variant = content["variants"]["fp32"]
    variant = {name: variant[name] for name in ("precision", "device", "encoder", "decoder")}
    for part in (variant["encoder"], variant["decoder"]):
        for end in ("inputs", "outputs"):
            wanted = ("image", "entry", *STATE, *(f"{name}_out" for name in STATE), "mask")
            part[end] = [spec for spec in part[end] if spec["name"] in wanted]
        part.update(wide=[], file="file")
    files = {"encoder": "file", "decoder": "file", "plugin": "p", "version_compatible": False}
    engine = {**ENGINE, "variant": "fp32", "gpu": "Tesla T4", **files}
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of no bytes
    return {
        **kept,
        "variants": {"fp32": variant},
        "classes": content["classes"][:2],
        "palette": content["palette"][:2],
        "files": {"file": {"sha256": digest, "bytes": 0}},
        "engines": [engine],
    }


WRONG = (
    None, True, 0, -1, 2, 0.5, 1e308, 2**32 + 1, 2**64 - 1, -(2**63), 10**30, "", "..", "../file",
    "/etc/passwd", "a\0b", "\n\x1b[31m'\"", "x" * 5000, [], {}, [[]], [1, 2, 3], [-5, 7], {"": {}},
    {"..": {"sha256": "", "bytes": 0}},
)  # fmt: skip


def each_field_wrong(content: Any, whole: Callable[[Any], Any]) -> list[Any]:
    """The whole document with each of its values replaced by each wrong one, and each left out."""
    made = [whole(wrong) for wrong in WRONG]
    if not isinstance(content, dict | list):
        return made
    for key in content if isinstance(content, dict) else range(len(content)):
        rest = content.copy()
        value = rest.pop(key)
        made.append(whole(rest))

        def around(inner: Any, key: Any = key) -> Any:
            changed = content.copy()
            changed[key] = inner
            return whole(changed)

        made += each_field_wrong(value, around)
    return made


@pytest.mark.thorough
@pytest.mark.cpp
def test_the_manifests_reader_survives_100000_broken_manifests(build, bundle, tmp_path):
    (tmp_path / "file").touch()
    valid = small_manifest(bundle("b0"))
    text = json.dumps(valid, separators=(",", ":"))
    deep = "[" * 100_000 + "]" * 100_000
    lines = [text, *(json.dumps(wrong) for wrong in each_field_wrong(valid, lambda whole: whole))]
    lines += [deep, deep[:100_000], text[:-1] + f', "deep": {deep}, "more": 1}}', '{"a":' * 50_000]
    command = [str(build / "mrcfa-fuzz"), str(tmp_path), str(FUZZED // 2)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen([*command, seed], text=True, **pipes) for seed in "01"]
    total = 0
    for process in running:
        said, complaints = process.communicate("\n".join(lines) + "\n")
        assert process.returncode == 0, complaints
        read, refused = (int(word) for word in said.split() if word.isdigit())
        assert refused > read > 100
        total += read + refused
    assert total >= FUZZED
