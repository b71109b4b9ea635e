"""Depthwise convs between transposes as shifted sums that keep channels last.

An 8-bit graph has its products with channels last, and its depthwise convs alone with channels
first. As a sum of shifted images a conv works in either layout (docs/algebra.md, lemma 12), and
TensorRT-RTX makes one kernel of the node before it, the conv and the node behind it.
"""

import numpy as np
import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import finished, inputs_of, only_consumer, producer, shape_of
from mrcfa.engines.shifts import ShiftedSum, is_plain_and_grouped

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def with_channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32; other convs stay as they are."""
    copy = ir.from_proto(model)
    for conv in filter(is_plain_and_grouped, list(copy.graph)):
        before = producer(inputs_of(conv)[0], "Transpose")
        after = only_consumer(conv.outputs[0], "Transpose")
        if before and after and _order(before) == TO_FIRST and _order(after) == TO_LAST:
            _replace(conv, inputs_of(before)[0], after)
    return finished(copy)


def _order(transpose: ir.Node) -> tuple[int, ...]:
    return tuple(transpose.attributes.get_ints("perm", ()))


def _replace(conv: ir.Node, image: ir.Value, after: ir.Node) -> None:
    """Rewrite a conv (R, h, w, C) -> (R, h, w, C), if it is depthwise and padding keeps h and w."""
    made = ShiftedSum(conv, 4)
    channels, inputs, rows, columns = made.weight.shape
    top, left, bottom, right = made.pads
    if (inputs, conv.attributes.get_int("group")) != (1, channels):
        return
    if (top + bottom, left + right) != (rows - 1, columns - 1):
        return
    size = shape_of(image)[1:3]
    total = made.constant("bias", made.bias.astype(np.float32))
    for (y, x), moved in made.taps(image, 1, (size, size)):
        total = made.plus_product(total, moved, made.weight[:, 0, y, x], f"{y}_{x}")
    made.replace([conv, after], made.node("Cast", [total], "narrow", to=made.kind))
