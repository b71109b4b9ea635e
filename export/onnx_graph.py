"""A graph module -> a simplified, checked ONNX model with names that a person can follow."""

import ast
import logging
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import partial

import onnx
import onnx.inliner
import onnx_ir as ir
import onnxsim
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes import common as passes
from onnxscript import optimizer
from torch import Tensor, nn

from mrcfa.errors import NotEqual
from mrcfa.export.repeated import written_out
from mrcfa.export.select_tokens import DOMAIN, VERSION, SelectTokens, function

LOWEST_OPSET = 17
"""LayerNormalization is one node from here on."""
HIGHEST_OPSET = 23
"""torch's exporter writes no newer one."""
TRACED_OPSET = 18
"""torch's exporter writes no older one."""
FOLDING_ROUNDS = 3
"""After these no constant is left to fold."""
REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceMean")
"""Their axes became an input in 18."""
ADDED_IN_18 = {
    "Split": ("num_outputs",),
    "Resize": ("keep_aspect_ratio_policy", "antialias"),
    **dict.fromkeys(REDUCTIONS, ("noop_with_empty_axes",)),
}
"""Attributes that our graphs do not need, except Split's, which becomes an input."""


def to_onnx(
    module: nn.Module,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    opset: int,
    hidden: Sequence[str] = (),
    selection: SelectTokens | None = None,
    inline: bool = False,
) -> onnx.ModelProto:
    """Export, attach `SelectTokens` (or inline it), simplify, infer shapes, check.

    `hidden` outputs keep their name but are no outputs of the graph.
    """
    trace = partial(_trace, opset=max(opset, TRACED_OPSET))
    model = written_out(trace(module, inputs, outputs), module, trace)
    if opset < TRACED_OPSET:
        _lower(model, opset)
    if selection is not None:
        model.functions.append(function(selection, opset))
        if not any(item.domain == DOMAIN for item in model.opset_import):
            model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    if inline:
        model = onnx.inliner.inline_local_functions(model)
        for item in [item for item in model.opset_import if item.domain == DOMAIN]:
            model.opset_import.remove(item)
    _name_nodes(model)
    model, same = onnxsim.simplify(model)
    if not same:
        raise NotEqual("the simplified graph does not compute what the exported one does")
    for value in [value for value in model.graph.output if value.name in hidden]:
        model.graph.output.remove(value)
    model = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    _adopt_orphans(model)
    _forget_source(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def logits_name(classes_last: bool) -> str:
    """Name of the logits inside a mask graph: `logits` have the classes on axis 1."""
    return "logits_last" if classes_last else "logits"


def _trace(
    module: nn.Module, inputs: dict[str, Tensor], outputs: Sequence[str], opset: int
) -> onnx.ModelProto:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            opset_version=opset,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    assert program is not None
    return _tidied(program.model, [*inputs], outputs)


def _tidied(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """The graph after the passes of torch's `optimize`, without its rules for pairs of nodes.

    Those rules take time that grows with the square of the nodes, and a decoder with groups of
    tokens has thousands of nodes.
    """
    optimizer.inline(model)
    for _ in range(FOLDING_ROUNDS):
        optimizer.fold_constants(model)
        optimizer.remove_unused_nodes(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.DeduplicateInitializersPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.OutputFixPass()(model)  # an input that is an output too gets a node between them
    ends = [*model.graph.inputs, *model.graph.outputs]
    for value, name in zip(ends, [*inputs, *outputs], strict=True):
        value.name = name
    tidied = onnx.shape_inference.infer_shapes(ir.to_proto(model))
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in (*tidied.graph.value_info, *tidied.graph.input)
    }
    for node in (node for node in tidied.graph.node if node.op_type == "CastLike"):
        node.op_type = "Cast"  # which the simplifier folds
        node.attribute.append(helper.make_attribute("to", kinds[node.input.pop()]))
    return tidied


def _lower(model: onnx.ModelProto, opset: int) -> None:
    """Convert opset 18 to 17, where Split takes sizes, not a number, and Resize fewer attributes.

    Axes of reductions are attributes there. Nothing else in these graphs differs between the two,
    as the checker confirms.
    """
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    constants = {tensor.name: tensor for tensor in model.graph.initializer} | {
        node.output[0]: node.attribute[0].t
        for node in model.graph.node
        if node.op_type == "Constant"
    }
    for node in model.graph.node:
        if node.op_type in REDUCTIONS and len(node.input) > 1:
            axes = numpy_helper.to_array(constants[node.input.pop()])
            node.attribute.append(helper.make_attribute("axes", axes.tolist()))
        attributes = {item.name: item for item in node.attribute}
        if node.op_type == "Split" and "num_outputs" in attributes:
            axis = attributes["axis"].i if "axis" in attributes else 0
            sizes = [shapes[name][axis].dim_value for name in node.output]
            node.input.append(f"{node.output[0]}/sizes")
            model.graph.initializer.append(
                helper.make_tensor(node.input[1], TensorProto.INT64, [len(sizes)], sizes)
            )
        for name in ADDED_IN_18.get(node.op_type, ()):
            if name in attributes:
                node.attribute.remove(attributes[name])
    for item in model.opset_import:
        if not item.domain:
            item.version = opset


def _name_nodes(model: onnx.ModelProto) -> None:
    """`encoder/stages/0/blocks/1/attn/q/MatMul` instead of `node_MatMul_17`."""
    seen: Counter[str] = Counter()
    for node in model.graph.node:
        scopes = next(
            (p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"), "[]"
        )
        path = [scope for scope in ast.literal_eval(scopes) if scope]
        module = path[-2] if len(path) > 1 else ""
        name = "/".join([*module.split("."), node.op_type]).lstrip("/")
        seen[name] += 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name]}"


def _adopt_orphans(model: onnx.ModelProto) -> None:
    """Name the simplifier's nodes after the module of their weight, or else of their input."""
    module_of: dict[str, str] = {}
    for number, node in enumerate(model.graph.node):
        module = node.name.rpartition("/")[0]
        if not module:
            weights = [name for name in node.input[1:] if name.endswith((".weight", ".bias"))]
            module = weights[0].rpartition("/")[2].rpartition(".")[0] if weights else ""
            module = module.replace(".", "/")
            module = module or module_of.get(node.input[0], "") if node.input else module
            node.name = f"{module}/{node.op_type}_{number}".lstrip("/")
        module_of |= dict.fromkeys(node.output, module)


def _forget_source(model: onnx.ModelProto) -> None:
    """Remove stack traces, which show paths of the machine that exported."""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.metadata_props[:]
