"""Grouped convs as sums of shifted images, where TensorRT-RTX makes faster engines of them.

For sm_75 it pads every group of a conv to eight channels. The decoder convolves hundreds of tokens
one by one and the encoder its channels: weights and maps grow eightfold, which makes engines of
hundreds of megabytes, and at the sizes that need the plugin a build ends without memory. As
gathers, products and sums TensorRT fuses the same conv with its neighbours, on other GPUs too: a
norm, the conv behind it and its statistics are one kernel.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import Array, Rewrite, array_of, finished, inputs_of, shape_of


def without_grouped_convs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes the same, with sums in FP32. Strided and dilated convs stay."""
    copy = ir.from_proto(model)
    for conv in filter(is_plain_and_grouped, list(copy.graph)):
        _replace(conv)
    return finished(copy)


def has_grouped_convs(model: onnx.ModelProto) -> bool:
    """True if there is a conv to rewrite."""
    return any(map(is_plain_and_grouped, ir.from_proto(model).graph))


def is_plain_and_grouped(node: ir.Node) -> bool:
    """True for a conv of several groups without strides or dilations."""
    steps = {
        step for name in ("strides", "dilations") for step in node.attributes.get_ints(name, ())
    }
    return node.op_type == "Conv" and node.attributes.get_int("group", 1) > 1 and steps <= {1}


class ShiftedSum(Rewrite):
    """A conv as a sum over its taps: the image, shifted by (y, x), times a weight, in FP32.

    Beyond the edges an image is zero (docs/algebra.md, lemma 12).
    """

    def __init__(self, conv: ir.Node, rank: int) -> None:
        super().__init__(conv)
        weight, *bias = map(array_of, inputs_of(conv)[1:])
        self.weight, self.bias = weight, bias[0] if bias else np.zeros(len(weight))
        self.pads = conv.attributes.get_ints("pads", (0, 0, 0, 0))
        self.kind = int(ir.DataType.from_numpy(weight.dtype))
        self._rank = rank

    def taps(
        self, image: ir.Value, axis: int, sizes: Sequence[Sequence[int]], scope: str = ""
    ) -> Iterator[tuple[tuple[int, int], ir.Value]]:
        """The image as each tap (y, x) reads it; `sizes` are (h, w) of the conv's output and input.

        Rows are along `axis` and columns along the next.
        """
        rows, columns = self.weight.shape[2:]
        (height, width), (rows_found, columns_found) = sizes
        for y in range(rows):
            by = y - self.pads[0]
            row = self._shifted(image, f"{scope}{y}", axis, by, height, rows_found)
            for x in range(columns):
                by, tap = x - self.pads[1], f"{scope}{y}_{x}"
                moved = self._shifted(row, tap, axis + 1, by, width, columns_found)
                yield (y, x), self.node("Cast", [moved], f"wide_{tap}", to=onnx.TensorProto.FLOAT)

    def plus_product(self, total: ir.Value, image: ir.Value, weight: Array, tap: str) -> ir.Value:
        """`total` plus an image times its weights."""
        factors = [image, self.constant(f"weight_{tap}", weight.astype(np.float32))]
        product = self.node("Mul", factors, f"product_{tap}")
        return self.node("Add", [total, product], f"sum_{tap}")

    def _shifted(
        self, image: ir.Value, name: str, axis: int, by: int, length: int, found: int
    ) -> ir.Value:
        """`length` of an image's `found` places along an axis, moved, with zeros beyond the edge.

        A shift is a gather: TensorRT would write a slice of a padded image to memory.
        """
        places = np.arange(length) + by
        inside = (places >= 0) & (places < found)
        index = self.constant(f"places_{name}", places.clip(0, found - 1))
        if inside.all():
            return self.node("Gather", [image, index], name, axis=axis)
        moved = self.node("Gather", [image, index], f"moved_{name}", axis=axis)
        kept = inside.astype(self.weight.dtype).reshape(-1, *[1] * (self._rank - 1 - axis))
        return self.node("Mul", [moved, self.constant(f"inside_{name}", kept)], name)


def _replace(conv: ir.Node) -> None:
    """Rewrite a conv with I inputs and O outputs in each of G groups -> (R, G·O, h, w).

    Output o of every group is a sum over inputs and taps. Images are (R, G, 1, h, w).
    """
    made, image, groups = ShiftedSum(conv, 5), inputs_of(conv)[0], conv.attributes.get_int("group")
    shape, size = shape_of(conv.outputs[0]), shape_of(image)[2:]
    _, inputs, rows, columns = made.weight.shape
    split = made.constant("split", [shape[0], groups, inputs, *size])
    grouped = made.node("Reshape", [image, split], "grouped")
    images: dict[tuple[int, int, int], ir.Value] = {}
    for i in range(inputs):
        one = made.node("Gather", [grouped, made.constant(f"place_{i}", [i])], f"input_{i}", axis=2)
        for (y, x), moved in made.taps(one, 3, (shape[2:], size), f"{i}_"):
            images[i, y, x] = moved
    weight = made.weight.reshape(groups, -1, inputs, rows, columns)
    outputs = []
    for o, bias in enumerate(made.bias.reshape(groups, -1).T):
        total = made.constant(f"bias_{o}", _shared(bias))
        for (i, y, x), moved in images.items():
            factors = _shared(weight[:, o, i, y, x])
            total = made.plus_product(total, moved, factors, f"{o}_{i}_{y}_{x}")
        outputs.append(made.node("Cast", [total], f"output_{o}", to=made.kind))
    joined = made.node("Concat", outputs, "joined", axis=2)
    made.replace([conv], made.node("Reshape", [joined, made.constant("whole", shape)]))


def _shared(values: Array) -> Array:
    """One number where all groups have the same, else one for each image of (R, G, 1, h, w)."""
    same = (values == values[0]).all()
    return (values[:1] if same else values.reshape(-1, 1, 1, 1)).astype(np.float32)
