"""Blocks of a graph that are computed in 8 bits or left in FP16 as a whole.

A block is a part of the model with a name: `encoder/stages/1/blocks/0/mlp`, `fusion`, `maa/8`.
The graph shows which of its nodes and tensors 8 bits may have:

- products: matrix products and ungrouped convs, whose operands are rounded. The first conv stays
  FP16, for it reads pixels, and so does attention that no GPU fuses in 8 bits.
- maps: what refinement's grouped convs write, and the sums that they read. No product reads them:
  they are the largest tensors of the decoder, and in 8 bits half as large.
- results of attentions: TensorRT fuses an attention in INT8 only if its result is rounded too.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from mrcfa.bundle.edits import inputs_of, name_of, only_consumer, producer, shape_of
from mrcfa.export.cost import multiply_adds
from mrcfa.export.quantization.formats import Format

PIXEL_CHANNELS = 4
"""The most input channels of a conv that reads pixels."""
SCALES = ("affinity", "sar", "maa")
"""Parts of the decoder that have a block for each scale."""
_VIEWS = {"Transpose", "Reshape"}


@dataclass(frozen=True)
class Block:
    name: str
    part: str
    """`encoder` or `decoder`."""
    products: tuple[str, ...]
    """Names of nodes."""
    tensors: tuple[str, ...]
    """Names of maps and of attentions' results."""
    multiply_adds: int


def blocks_of(model: onnx.ModelProto, part: str, form: Format) -> list[Block]:
    """All blocks of a graph, in its order."""
    products: dict[str, list[ir.Node]] = defaultdict(list)
    tensors: dict[str, list[ir.Value]] = defaultdict(list)
    for node in ir.from_proto(model).graph:
        block = _merged(node) or block_name(name_of(node))
        if _is_product(node, form):
            products[block].append(node)
            if producer(inputs_of(node)[0], "Softmax"):
                tensors[block].append(node.outputs[0])
        elif part == "decoder" and _groups(node) > 1:
            tensors[block] += _maps(node)
    return [
        Block(
            name,
            part,
            products=tuple(map(name_of, products[name])),
            tensors=tuple(dict.fromkeys(map(name_of, tensors[name]))),
            multiply_adds=sum(map(multiply_adds, products[name])),
        )
        for name in dict.fromkeys([*products, *(name for name in tensors if tensors[name])])
    ]


def block_name(node: str) -> str:
    """`encoder/stages/1/blocks/0/attn/q/MatMul` -> `encoder/stages/1/blocks/0/attn`."""
    parts = node.split("/")
    if parts[:2] == ["encoder", "stages"]:
        return "/".join(parts[:6] if parts[3] == "blocks" else parts[:4])
    return "/".join(parts[: 2 if parts[0] in SCALES else 1])


def rounded_tensors(model: onnx.ModelProto, blocks: Sequence[Block]) -> list[str]:
    """The computed tensors that these blocks have in 8 bits, each once."""
    nodes = {node.name: node for node in ir.from_proto(model).graph}
    operands = (
        name_of(value)
        for block in blocks
        for product in block.products
        for value in inputs_of(nodes[product])[:2]
        if not value.is_initializer()
    )
    return list(dict.fromkeys([*operands, *(name for block in blocks for name in block.tensors)]))


def _merged(node: ir.Node) -> str:
    """`fusion+query+key` for one product that the simplifier made of those of several blocks.

    It named the product after the tensor that they all read.
    """
    split = only_consumer(node.outputs[0], "Split")
    if node.op_type != "MatMul" or split is None:
        return ""
    readers = [reader for value in split.outputs for reader in value.consumers()]
    owners = dict.fromkeys(block_name(name_of(reader)) for reader in readers)
    return "+".join(owners) if len(owners) > 1 else ""


def _is_product(node: ir.Node, form: Format) -> bool:
    if node.op_type == "Conv":
        weight = inputs_of(node)[1]
        _, channels, *taps = shape_of(weight)
        ungrouped = weight.is_initializer() and _groups(node) == 1
        return ungrouped and channels > PIXEL_CHANNELS and math.prod(taps) <= form.most_taps
    if node.op_type != "MatMul":
        return False
    scores = filter(_is_scores, (inputs_of(node)[0], node.outputs[0]))
    return all(shape_of(value)[-1] <= form.most_keys for value in scores)


def _is_scores(value: ir.Value) -> bool:
    """True if the softmax of an attention reads or writes this tensor."""
    return any(node.op_type == "Softmax" for node in (value.producer(), *value.consumers()) if node)


def _maps(conv: ir.Node) -> Iterator[ir.Value]:
    """The sum that a conv reads, and its result unless that is an operand of a product."""
    image, result = inputs_of(conv)[0], conv.outputs[0]
    if producer(image, "Add"):
        yield image
    if not _feeds_product(result):
        yield result


def _feeds_product(value: ir.Value) -> bool:
    """True if a product reads this tensor, as it is or through views."""
    return any(
        node.op_type == "MatMul"
        or (node.op_type in _VIEWS and any(map(_feeds_product, node.outputs)))
        for node in value.consumers()
    )


def _groups(node: ir.Node) -> int:
    return node.attributes.get_int("group", 1) if node.op_type == "Conv" else 1
