"""Blocks of a graph that are computed in 8 bits or left in FP16 as a whole.

A block is a part of the model with a name: `encoder/stages/1/blocks/0/mlp`, `fusion`, `maa/8`.
What is in it that 8 bits may have is read off the graph:

- products: matrix products and ungrouped convs, whose operands are rounded. The first conv stays
  FP16, for it reads pixels, and so does attention that no GPU fuses in 8 bits.
- maps: what refinement's grouped convs write, and the sums that they read. No product reads them:
  they are the largest tensors of the decoder, and in 8 bits half as large.
- answers of attentions: TensorRT fuses an attention in INT8 only if its answer is rounded too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx.helper import get_attribute_value

from mrcfa.export.cost import multiply_adds, tensor_shapes
from mrcfa.export.quantization.formats import Format

PIXEL_CHANNELS = 4
"""A conv of no more channels reads pixels."""
SCALES = ("affinity", "sar", "maa")
"""Parts of the decoder that have a block for each scale."""


@dataclass(frozen=True)
class Block:
    name: str
    part: str
    """`encoder` or `decoder`."""
    products: tuple[str, ...]
    """Names of nodes."""
    tensors: tuple[str, ...]
    """Names of maps and answers."""
    multiply_adds: int


_VIEWS = {"Transpose", "Reshape"}


class Wiring:
    """Who makes and who reads each tensor of a graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {each.name: each for each in model.graph.initializer}
        self.makers = {output: node for node in model.graph.node for output in node.output}
        self.nodes = {node.name: node for node in model.graph.node}

    @cached_property
    def readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    def operands(self, product: str) -> list[str]:
        """What of a product's inputs is computed."""
        return [name for name in self.nodes[product].input[:2] if name not in self.constants]


def blocks_of(model: onnx.ModelProto, part: str, form: Format) -> list[Block]:
    """In the order of the graph."""
    wiring, shapes = Wiring(model), tensor_shapes(model)
    products: dict[str, list[str]] = {}
    tensors: dict[str, list[str]] = {}
    work: dict[str, int] = {}
    for node in model.graph.node:
        block = _merged(node, wiring) or block_name(node.name)
        if _is_product(node, wiring, form, shapes):
            products.setdefault(block, []).append(node.name)
            work[block] = work.get(block, 0) + multiply_adds(node, shapes)
            if _made_by(node.input[0], "Softmax", wiring):
                tensors.setdefault(block, []).append(node.output[0])
        elif part == "decoder" and _group(node) > 1:
            tensors.setdefault(block, []).extend(_maps(node, wiring))
    return [
        Block(
            name,
            part,
            tuple(products.get(name, ())),
            tuple(dict.fromkeys(tensors.get(name, ()))),
            work.get(name, 0),
        )
        for name in dict.fromkeys([*products, *(name for name, found in tensors.items() if found)])
    ]


def block_name(node: str) -> str:
    """`encoder/stages/1/blocks/0/attn/q/MatMul` -> `encoder/stages/1/blocks/0/attn`."""
    parts = node.split("/")
    if parts[:2] == ["encoder", "stages"]:
        return "/".join(parts[:6] if parts[3] == "blocks" else parts[:4])
    return "/".join(parts[: 2 if parts[0] in SCALES else 1])


def rounded_tensors(model: onnx.ModelProto, blocks: Sequence[Block]) -> list[str]:
    """The computed tensors that these blocks have in 8 bits, each once."""
    wiring = Wiring(model)
    operands = (
        name for block in blocks for node in block.products for name in wiring.operands(node)
    )
    return list(dict.fromkeys([*operands, *(name for block in blocks for name in block.tensors)]))


def _merged(node: onnx.NodeProto, wiring: Wiring) -> str:
    """`fusion+query+key`, of one product that the simplifier made of those of several blocks.

    It named the product after what they all read.
    """
    parts = wiring.readers.get(node.output[0], [])
    if node.op_type != "MatMul" or [each.op_type for each in parts] != ["Split"]:
        return ""
    readers = [each for name in parts[0].output for each in wiring.readers.get(name, ())]
    owners = dict.fromkeys(block_name(each.name) for each in readers)
    return "+".join(owners) if len(owners) > 1 else ""


def _is_product(
    node: onnx.NodeProto, wiring: Wiring, form: Format, shapes: Mapping[str, Sequence[int]]
) -> bool:
    if node.op_type == "Conv":
        weight = wiring.constants.get(node.input[1])
        if weight is None or _group(node) > 1 or weight.dims[1] <= PIXEL_CHANNELS:
            return False
        return bool(weight.dims[2] * weight.dims[3] <= form.most_taps)
    if node.op_type != "MatMul":
        return False
    scores = next((name for name in (node.input[0], node.output[0]) if _scores(name, wiring)), None)
    return scores is None or shapes[scores][-1] <= form.most_keys


def _scores(name: str, wiring: Wiring) -> bool:
    """Whether a tensor is what the softmax of an attention reads or writes."""
    readers = wiring.readers.get(name, ())
    return _made_by(name, "Softmax", wiring) or any(each.op_type == "Softmax" for each in readers)


def _made_by(name: str, kind: str, wiring: Wiring) -> bool:
    maker = wiring.makers.get(name)
    return maker is not None and maker.op_type == kind


def _maps(conv: onnx.NodeProto, wiring: Wiring) -> Iterator[str]:
    """A sum that the conv reads and what it writes, unless that is an operand of a product."""
    if _made_by(conv.input[0], "Add", wiring):
        yield conv.input[0]
    if not _feeds_product(conv.output[0], wiring):
        yield conv.output[0]


def _feeds_product(name: str, wiring: Wiring) -> bool:
    return any(
        reader.op_type == "MatMul"
        or (
            reader.op_type in _VIEWS and any(_feeds_product(each, wiring) for each in reader.output)
        )
        for reader in wiring.readers.get(name, ())
    )


def _group(node: onnx.NodeProto) -> int:
    if node.op_type != "Conv":
        return 1
    return next((get_attribute_value(each) for each in node.attribute if each.name == "group"), 1)
