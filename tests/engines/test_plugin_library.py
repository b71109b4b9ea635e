"""The plugin library as TensorRT sees it: compiled against real headers, built into a real plan.

TENSORRT_INCLUDE names the folders of TensorRT headers to compile against. TensorRT for RTX loads
the library in processes of its own, whose script is this file too: it prints a JSON report.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import pytest
from naming import names
from onnx import TensorProto, helper

PLUGIN = Path(__file__).parents[2] / "engines" / "plugin"
INCLUDES = [folder for folder in os.environ.get("TENSORRT_INCLUDE", "").split(os.pathsep) if folder]
FIELDS = {"keep": 4096, "top": 5, "height": 50, "width": 100, "factor": 1}


@pytest.fixture(scope="module", params=INCLUDES or [None])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libmrcfa_plugin.so for sm_75, where every warning is an error."""
    if request.param is None:
        pytest.skip("not run: TENSORRT_INCLUDE is not set")
    for tool in ("nvcc", "cmake"):
        if shutil.which(tool) is None:
            pytest.skip(f"not run: no {tool}")
    folder = tmp_path_factory.mktemp("plugin")
    strict = "-DCMAKE_CUDA_FLAGS=-Werror all-warnings -Xcompiler=-Werror"
    configure = ["cmake", "-S", PLUGIN, "-B", folder, "-DCMAKE_CUDA_ARCHITECTURES=75", strict]
    for command in (configure, ["cmake", "--build", folder]):
        environment = {**os.environ, "TENSORRT_INCLUDE": request.param}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "libmrcfa_plugin.so"


@pytest.fixture(scope="module")
def rtx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH: with a plugin loaded the parser opens libtensorrt_rtx.so, of
    which the wheel has only the versioned name, and aborts if it is not found."""
    libraries = find_spec("tensorrt_rtx_libs")
    if libraries is None or find_spec("tensorrt_rtx") is None:
        pytest.skip("not run: tensorrt_rtx is not installed")
    folder = tmp_path_factory.mktemp("rtx")
    (installed,) = libraries.submodule_search_locations or ()
    (versioned,) = Path(installed).glob("libtensorrt_rtx.so.*")
    (folder / "libtensorrt_rtx.so").symlink_to(versioned)
    return folder


def select_tokens_model(
    fields: dict[str, int], keys: int | None = None, dtype: int = TensorProto.FLOAT16
) -> onnx.ModelProto:
    """One call of the local function mrcfa::SelectTokens, whose body is TensorRT's own TopK."""
    keys = keys or FIELDS["height"] * FIELDS["width"]
    keep = fields.get("keep", 1)
    plugin = {"plugin_namespace": "mrcfa", "plugin_version": "1"}
    call = helper.make_node(
        "SelectTokens", ["affinity"], ["selected"], domain="mrcfa", **fields, **plugin
    )
    body = helper.make_function(
        "mrcfa",
        "SelectTokens",
        ["affinity"],
        ["selected"],
        [
            helper.make_node("ReduceMax", ["affinity"], ["scores"], axes=[1], keepdims=0),
            helper.make_node("Constant", [], ["keep"], value_ints=[keep]),
            helper.make_node("TopK", ["scores", "keep"], ["values", "indices"], axis=1),
            helper.make_node("Cast", ["indices"], ["selected"], to=TensorProto.INT32),
        ],
        [helper.make_opsetid("", 17)],
        attributes=[*fields, *plugin],
    )
    graph = helper.make_graph(
        [call],
        "select_tokens",
        [helper.make_tensor_value_info("affinity", dtype, [3, 40, keys])],
        [helper.make_tensor_value_info("selected", TensorProto.INT32, [3, None])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mrcfa", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[body], ir_version=9)


def build(rtx: Path, library: Path | None, model: onnx.ModelProto) -> dict[str, Any]:
    """`build_report` in a process of its own, with all that TensorRT and the plugin said."""
    path = rtx / "model.onnx"
    onnx.save(model, path)
    paths = {"LD_LIBRARY_PATH": str(rtx), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {**os.environ, **paths}
    command = [sys.executable, __file__, str(path), *([str(library)] if library else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "said": done.stdout + done.stderr}


def test_the_library_needs_no_tensorrt_to_load_and_shows_its_entry_points(library: Path) -> None:
    loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    assert loaded.getCreators
    assert loaded.setLoggerFinder


def test_a_call_becomes_the_plugin_where_topk_could_not_be_built(library: Path, rtx: Path) -> None:
    report = build(rtx, library, select_tokens_model(FIELDS))
    assert ["SelectTokens", "1", "mrcfa"] in report["creators"]
    assert report["layers"] == ["PLUGIN_V3"]
    assert report["outputs"] == [["INT32", [3, 4096]]]
    assert report["plan_holds"] == FIELDS


def test_without_the_library_the_body_is_taken_and_topk_is_too_large(rtx: Path) -> None:
    report = build(rtx, None, select_tokens_model(FIELDS))
    assert "TOPK" in report["layers"]
    assert report["plan_holds"] is None
    assert names(report["said"], 3840)


def test_fp32_affinities_and_an_enlarged_map_are_built(library: Path, rtx: Path) -> None:
    fields = {**FIELDS, "factor": 2, "keep": 20000}
    report = build(rtx, library, select_tokens_model(fields, dtype=TensorProto.FLOAT))
    assert report["layers"] == ["PLUGIN_V3"]
    assert report["outputs"] == [["INT32", [3, 20000]]]
    assert report["plan_holds"] == fields


@pytest.mark.parametrize(
    ("changes", "things"),
    [
        ({"keep": 0}, ("'keep'", 0, 1, 5000)),
        ({"keep": 5001}, ("'keep'", 5001, 1, 5000)),
        ({"top": 9}, ("'top'", 9, 1, 8)),
        ({"factor": 3}, ("'factor'", 3, 1, 2)),
        ({"height": 0}, ("'height'", 0, 1)),
        ({"height": 40000, "width": 40000}, ("40000x40000", "factor 1")),
        ({"width": 99, "keep": 7}, (5000, "height 50", "width 99", 4950)),
    ],
)
def test_wrong_fields_are_refused_by_name(
    library: Path, rtx: Path, changes: dict[str, int], things: tuple[object, ...]
) -> None:
    report = build(rtx, library, select_tokens_model({**FIELDS, **changes}))
    assert report["plan_holds"] is None
    assert any(names(line, "mrcfa::SelectTokens", *things) for line in report["said"].splitlines())


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_named(library: Path, rtx: Path, name: str) -> None:
    fields = {field: value for field, value in FIELDS.items() if field != name}
    report = build(rtx, library, select_tokens_model(fields))
    assert report["layers"] == []
    lines = report["said"].splitlines()
    assert any(names(line, "mrcfa::SelectTokens", f"'{name}'") for line in lines)


def build_report(model: Path, library: Path | None = None) -> dict[str, Any]:
    """Parses the model with the library in the registry and builds it for SM75; no GPU needed."""
    import tensorrt_rtx as trt

    logger = trt.Logger(trt.Logger.ERROR)
    registry = trt.get_plugin_registry()
    if library is not None:
        registry.load_library(str(library))
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parsed = trt.OnnxParser(network, logger).parse(model.read_bytes())
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM75, 0)
    plan = builder.build_serialized_network(network, config) if parsed else None
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    return {
        "creators": [
            [creator.name, creator.plugin_version, creator.plugin_namespace]
            for creator in registry.all_creators
        ],
        "layers": [network.get_layer(i).type.name for i in range(network.num_layers)],
        "outputs": [[output.dtype.name, list(output.shape)] for output in outputs],
        "plan_holds": plan and serialised_fields(bytes(plan)),
    }


def serialised_fields(plan: bytes) -> dict[str, int]:
    """The plugin's fields in a plan: name, type and value stand a few bytes from each other."""
    found = {}
    for name in FIELDS:
        match = re.search(name.encode() + rb".{,40}INT32.{14}(.{4})", plan, re.DOTALL)
        if match:
            found[name] = int.from_bytes(match[1], "little")
    return found


if __name__ == "__main__":
    print(json.dumps(build_report(*map(Path, sys.argv[1:]))))
