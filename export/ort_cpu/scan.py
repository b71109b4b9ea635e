"""Several streams in one graph for CPUs: a Scan whose body is the graph of one stream.

Every stream's results equal those of a single stream, bit for bit, because the same kernels compute
them on the same shapes. A batch would split its products differently, and its maps would no longer
fit the caches that one stream's just fit.
"""

import onnx
from onnx import TensorProto, helper


def scanned(model: onnx.ModelProto, streams: int) -> onnx.ModelProto:
    """The same graph with `streams` streams on the first axis of every tensor."""
    body = model.graph
    graph = helper.make_graph([], body.name, [], [])
    graph.initializer.append(helper.make_tensor(_AXIS, TensorProto.INT64, [1], [1]))
    for value in body.input:
        graph.input.append(_repeated(value, streams))
        graph.node.append(_view("Unsqueeze", value.name, _row(value.name)))
    scan = helper.make_node(
        "Scan",
        [_row(value.name) for value in body.input],
        [_row(value.name) for value in body.output],
        name=_SCAN,
        num_scan_inputs=len(body.input),
    )
    inner = scan.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g
    inner.CopyFrom(body)
    graph.node.append(scan)
    for value in body.output:
        graph.output.append(_repeated(value, streams))
        graph.node.append(_view("Squeeze", _row(value.name), value.name))
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    whole.graph.CopyFrom(graph)
    onnx.checker.check_model(whole, full_check=True)
    return whole


def with_output(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with one more of its tensors as an output; from a Scan it comes as (B, 1, …)."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    graph = opened.graph
    kind = helper.make_tensor_value_info(name, graph.input[0].type.tensor_type.elem_type, None)
    graph.output.append(kind)
    for scan in (node for node in graph.node if node.name == _SCAN):
        (body,) = (item.g for item in scan.attribute if item.name == "body")
        body.output.append(kind)
        scan.output.append(name)
    return opened


_SCAN = "streams/Scan"
_AXIS = "streams/axis"


def _row(name: str) -> str:
    """Name of a tensor as an input or output of the Scan, (B, 1, …)."""
    return f"streams/{name}"


def _view(kind: str, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node(kind, [source, _AXIS], [target], name=f"streams/{kind}_{target}")


def _repeated(value: onnx.ValueInfoProto, streams: int) -> onnx.ValueInfoProto:
    wide = onnx.ValueInfoProto()
    wide.CopyFrom(value)
    wide.type.tensor_type.shape.dim[0].dim_value = streams
    return wide
