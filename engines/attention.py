"""Attentions of an INT8 graph in FP16, for targets on which TensorRT does not fuse them in INT8.

On Turing it fuses none of more than 384 keys with heads of 64 channels: their scores would be
written to memory, and some fail to build. Only roundings are removed, so nothing is less exact.
"""

from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from mrcfa.bundle.edits import finished, inputs_of, only_consumer, producer, shape_of

KEYS_ON_TURING, SMALL_HEAD = 384, 32
"""The most keys that TensorRT-RTX fuses in INT8 there, unless heads have no more channels."""


def has_narrow_attention(model: onnx.ModelProto) -> bool:
    """True if the graph has an attention in 8 bits."""
    return any(True for _ in _attentions(ir.from_proto(model)))


def is_too_large_for_turing(model: onnx.ModelProto) -> bool:
    """True if an INT8 attention does not build there, but fails with an internal error."""
    return any(
        shape_of(score.outputs[0])[-1] > KEYS_ON_TURING
        and shape_of(inputs_of(score)[0])[-1] > SMALL_HEAD
        for score, _ in _attentions(ir.from_proto(model))
    )


def with_fp16_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which attentions read and write tensors as they were before rounding."""
    copy = ir.from_proto(model)
    for score, mix in list(_attentions(copy)):
        for product in (score, mix):
            for index, value in enumerate(inputs_of(product)):
                product.replace_input_with(index, _before_rounding(value))
        for node, index in _rounded(mix.outputs[0]).uses():
            node.replace_input_with(index, mix.outputs[0])
    RemoveUnusedNodesPass()(copy)
    return finished(copy)


def _attentions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Node]]:
    """The products before and behind each softmax whose result is rounded."""
    for softmax in (node for node in model.graph if node.op_type == "Softmax"):
        weights = softmax.outputs[0]
        score = producer(inputs_of(softmax)[0], "MatMul")
        mix = only_consumer(_rounded(weights), "MatMul")
        if score is not None and mix is not None and _rounded(weights) is not weights:
            yield score, mix


def _before_rounding(value: ir.Value) -> ir.Value:
    """The tensor that was rounded to this one; a weight, or one that was not, is itself."""
    wide = producer(value, "DequantizeLinear")
    narrow = wide and producer(inputs_of(wide)[0], "QuantizeLinear")
    return inputs_of(narrow)[0] if narrow else value


def _rounded(value: ir.Value) -> ir.Value:
    """A tensor after rounding, if all its consumers read it rounded; else itself."""
    narrow = only_consumer(value, "QuantizeLinear")
    wide = narrow and only_consumer(narrow.outputs[0], "DequantizeLinear")
    return wide.outputs[0] if wide else value
