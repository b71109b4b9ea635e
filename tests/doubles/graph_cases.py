"""Graphs that no bundle may have: what is changed in a decoder, and a word of the error."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from mrcfa.bundle import MANIFEST


def put(path: Path, name: str, content: bytes) -> None:
    """Replace a file, with its hash, as somebody who makes a bundle to hurt would write it."""
    (path / name).unlink(missing_ok=True)
    (path / name).write_bytes(content)
    manifest = json.loads((path / MANIFEST).read_text())
    digest = hashlib.sha256(content).hexdigest()
    manifest["files"][name] = {"sha256": digest, "bytes": len(content)}
    (path / MANIFEST).unlink()
    (path / MANIFEST).write_text(json.dumps(manifest))


def external(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def a_tensor() -> TensorProto:
    tensor = helper.make_tensor("outside", TensorProto.FLOAT, [1], [0.0])
    external(tensor)
    return tensor


def body(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "body", [], [])


def initializer(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(a_tensor())


def constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["x"], value=a_tensor()))


def sparse(model: onnx.ModelProto) -> None:
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(a_tensor(), indices, [1]))


def in_a_body(model: onnx.ModelProto) -> None:
    within = body(helper.make_node("Constant", [], ["x"], value=a_tensor()))
    model.graph.node.append(helper.make_node("Scan", [], ["y"], body=within, num_scan_inputs=0))


def in_a_function(model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["x"], value=a_tensor())
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("d", "f", [], ["x"], [node], opsets))


def half_said(model: onnx.ModelProto) -> None:
    """A location alone; some runtimes might look no further."""
    tensor = helper.make_tensor("outside", TensorProto.FLOAT, [1], [0.0])
    tensor.external_data.add(key="location", value="weights.bin")
    model.graph.initializer.append(tensor)


def loop(model: onnx.ModelProto) -> None:
    steps = helper.make_tensor("steps", TensorProto.INT64, [], [2**62])
    model.graph.initializer.append(steps)
    model.graph.node.append(helper.make_node("Loop", ["steps", ""], ["y"], body=body()))


def condition(model: onnx.ModelProto) -> None:
    parts = {"then_branch": body(), "else_branch": body()}
    model.graph.node.append(helper.make_node("If", ["x"], ["y"], **parts))


def loop_in_a_scan(model: onnx.ModelProto) -> None:
    within = body(helper.make_node("Loop", ["", ""], ["y"], body=body()))
    model.graph.node.append(helper.make_node("Scan", [], ["y"], body=within, num_scan_inputs=0))


def nested(model: onnx.ModelProto) -> None:
    within = body()
    for _ in range(20):
        within = body(helper.make_node("Scan", [], ["y"], body=within, num_scan_inputs=0))
    model.graph.node.extend(within.node)


def laughs(model: onnx.ModelProto) -> None:
    """Functions that double: written out they have 2^60 nodes."""
    opsets = [helper.make_opsetid("d", 1)]
    for number in range(60):
        nodes = [helper.make_node(f"f{number + 1}", [], [f"y{each}"], domain="d") for each in "ab"]
        function = helper.make_function("d", f"f{number}", [], ["ya"], nodes, opsets)
        model.functions.append(function)


def many_calls(model: onnx.ModelProto) -> None:
    opsets = [helper.make_opsetid("", 18)]
    nodes = [helper.make_node("Neg", ["x"], [f"y{each}"]) for each in range(2000)]
    model.functions.append(helper.make_function("d", "f", ["x"], ["y0"], nodes, opsets))
    model.graph.node.extend(helper.make_node("f", ["x"], ["y"], domain="d") for _ in range(2000))


def renamed(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "memory_in"


def retyped(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def dynamic(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"


def added(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1]))


REFUSED_GRAPHS = {
    initializer: "another file",
    constant: "another file",
    sparse: "another file",
    in_a_body: "another file",
    in_a_function: "another file",
    half_said: "another file",
    loop: "'Loop'",
    condition: "'If'",
    loop_in_a_scan: "'Loop'",
    nested: "nested",
    laughs: "function",
    many_calls: "nodes",
    renamed: "memory_out",
    retyped: "base",
    dynamic: "base",
    added: "more",
}


def damage_graph(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    """Change the decoder of a bundle, and the manifest's hash with it."""
    (path / "weights.bin").write_bytes(bytes(4))
    model = onnx.load(path / "decoder.onnx", load_external_data=False)
    change(model)
    put(path, "decoder.onnx", model.SerializeToString())
