"""A mask whose logits are interpolated only in the cells where classes meet.

Logits at 1/4 are the corners of cells, and a class that leads at all four corners leads everywhere
between them (docs/algebra.md, lemma 11). The number of the other cells depends on the picture:
NonZero finds them. TensorRT needs static shapes, so this mask is for CPUs only.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, parser

from mrcfa.export.onnx_graph import logits_name

SCALE = 4
"""The mask's size divided by that of the logits."""
STRIP = 16
"""Rows of cells at once. With a third of them mixed some 9 MB are interpolated, and 28 at most."""
LOGITS = logits_name(classes_last=True)


def with_corner_mask(decoder: onnx.ModelProto) -> onnx.ModelProto:
    """The same decoder with other nodes between its logits, (1, H/4, W/4, C), and its mask."""
    model = onnx.ModelProto()
    model.CopyFrom(decoder)
    graph = model.graph
    _drop_after(graph, LOGITS)
    tail = _tail(_shape(graph, LOGITS), _shape(graph, "mask"))
    graph.node.extend(tail.node)
    graph.initializer.extend(tail.initializer)
    onnx.checker.check_model(model, full_check=True)
    return model


def _shape(graph: onnx.GraphProto, name: str) -> tuple[int, ...]:
    values = (*graph.input, *graph.value_info, *graph.output)
    value = next(value for value in values if value.name == name)
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _drop_after(graph: onnx.GraphProto, start: str) -> None:
    """Remove all nodes that depend on a tensor, and the initializers that no other node reads."""
    reached, kept = {start}, []
    for node in graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
        else:
            kept.append(node)
    read = {name for node in kept for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    known = [value for value in graph.value_info if value.name not in reached - {start}]
    for field, values in (
        (graph.node, kept),
        (graph.initializer, weights),
        (graph.value_info, known),
    ):
        del field[:]
        field.extend(values)


def _tail(logits: tuple[int, ...], mask: tuple[int, ...]) -> onnx.GraphProto:
    _, height, width, classes = logits
    strips = -(-(height + 1) // STRIP)
    rows, columns = -(-(height + 1) // strips), width + 1
    tail = parser.parse_graph(f"""
        tail (float{list(logits)} {LOGITS}) => (uint8{list(mask)} mask)
        <
          int64[2] positions = {{{height * width}, {classes}}},
          int64[4] grid = {{1, 1, {height}, {width}}},
          int64[8] edge = {{0, 0, 1, 1, 0, 0, 1, 1}},
          int64[8] filler = {{0, 0, 0, 0, 0, 0, {strips * rows - height - 1}, 0}},
          int64[2] by_strip = {{{strips}, {rows * columns}}},
          int64[4] cells = {{{strips * rows}, {columns}, {SCALE}, {SCALE}}},
          int64[3] image = {{1, {strips * rows * SCALE}, {columns * SCALE}}},
          int64[2] start = {{{SCALE // 2}, {SCALE // 2}}},
          int64[2] end = {{{SCALE * height + SCALE // 2}, {SCALE * width + SCALE // 2}}},
          int64[2] image_axes = {{1, 2}}
        >
        {{
          classes_last = Identity({LOGITS})
          scores = Reshape(classes_last, positions)
          leading = ArgMax<axis=1, keepdims=0>(scores)
          leaders = Cast<to={TensorProto.FLOAT}>(leading)
          by_position = Reshape(leaders, grid)
          with_edge = Pad<mode="edge">(by_position, edge)
          negative = Neg(with_edge)
          highest = MaxPool<kernel_shape=[2, 2]>(with_edge)
          negative_lowest = MaxPool<kernel_shape=[2, 2]>(negative)
          lowest = Neg(negative_lowest)
          all_highest = Pad(highest, filler)
          all_lowest = Pad(lowest, filler)
          highest_by_strip = Reshape(all_highest, by_strip)
          lowest_by_strip = Reshape(all_lowest, by_strip)
          strips = Scan<num_scan_inputs=3>(corners, highest_by_strip, lowest_by_strip)
          by_cell = Reshape(strips, cells)
          by_row = Transpose<perm=[0, 2, 1, 3]>(by_cell)
          with_margin = Reshape(by_row, image)
          mask = Slice(with_margin, start, end, image_axes)
        }}""")
    (scan,) = (node for node in tail.node if node.op_type == "Scan")
    scan.attribute.append(helper.make_attribute("body", _strip(rows * columns, classes)))
    corners = np.zeros((4, strips * rows, columns), np.int32)
    corners[:, : height + 1] = _corners(height, width)
    by_strip = corners.reshape(4, strips, -1).swapaxes(0, 1)
    tail.initializer.append(numpy_helper.from_array(np.ascontiguousarray(by_strip), "corners"))
    tail.initializer.append(numpy_helper.from_array(_weights(), "weights"))
    for number, node in enumerate(tail.node):
        node.name = f"mask/{node.op_type}_{number}"
    return tail


def _strip(cells: int, classes: int) -> onnx.GraphProto:
    """A graph for a strip of cells, which computes the class of each cell's 4×4 points.

    Its inputs are each cell's corners, and the highest and the lowest class that leads at one.
    """
    points = SCALE**2
    return parser.parse_graph(f"""
        strip (int32[4, {cells}] corner, float[{cells}] highest, float[{cells}] lowest)
          => (uint8[{cells}, {points}] classes)
        <
          int64[1] corner_axis = {{0}},
          int64[1] point_axis = {{1}},
          int64[2] by_corner = {{4, -1}},
          int64[3] by_point = {{{points}, -1, {classes}}},
          int64[2] all_points = {{{cells}, {points}}}
        >
        {{
          mixed = Greater(highest, lowest)
          row_of_cells = NonZero(mixed)
          column_of_cells = Transpose<perm=[1, 0]>(row_of_cells)
          mixed_cells = Squeeze(row_of_cells, corner_axis)
          mixed_corners = Gather<axis=1>(corner, mixed_cells)
          corner_scores = Gather(scores, mixed_corners)
          known = Reshape(corner_scores, by_corner)
          between = MatMul(weights, known)
          point_scores = Reshape(between, by_point)
          won = ArgMax<axis=2, keepdims=0>(point_scores)
          winners = Cast<to={TensorProto.UINT8}>(won)
          winners_by_cell = Transpose<perm=[1, 0]>(winners)
          leader = Cast<to={TensorProto.UINT8}>(highest)
          leader_of_cell = Unsqueeze(leader, point_axis)
          everywhere = Expand(leader_of_cell, all_points)
          classes = ScatterND(everywhere, column_of_cells, winners_by_cell)
        }}""")


def _corners(height: int, width: int) -> NDArray[np.int32]:
    """Flat positions of every cell's corners, (4, h + 1, w + 1), clamped at the edge."""
    (top, bottom), (left, right) = (
        (np.maximum(np.arange(-1, length), 0), np.minimum(np.arange(length + 1), length - 1))
        for length in (height, width)
    )
    pairs = [(row, column) for row in (top, bottom) for column in (left, right)]
    return np.stack([row[:, None] * width + column for row, column in pairs]).astype(np.int32)


def _weights() -> NDArray[np.float32]:
    """Bilinear weights of the corners at the points of a cell, (16, 4), half-pixel centres."""
    near = (np.arange(SCALE) + 0.5) / SCALE
    along = np.stack([1 - near, near], axis=1)
    return np.kron(along, along).astype(np.float32)
