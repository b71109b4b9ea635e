"""Attentions of an INT8 graph in FP16, for targets on which TensorRT does not fuse them in INT8.

On Turing it fuses none of more than 384 keys with heads of 64 channels: their scores would be
written out, and some fail to build. What is left out are roundings, so nothing is less exact.
"""

from collections.abc import Iterator

import onnx

from mrcfa.engines.rewriting import shapes_of

KEYS_ON_TURING, SMALL_HEAD = 384, 32
"""How many keys TensorRT-RTX fuses there in INT8, and the heads for which that does not matter."""
_ROUNDING = ("QuantizeLinear", "DequantizeLinear")


def has_narrow_attention(model: onnx.ModelProto) -> bool:
    return any(True for _ in _attentions(_Wiring(model)))


def is_too_large_for_turing(model: onnx.ModelProto) -> bool:
    """Whether an INT8 attention does not build there, with an internal error on stderr."""
    shapes = shapes_of(model)
    return any(
        shapes[score.output[0]][-1] > KEYS_ON_TURING and shapes[score.input[0]][-1] > SMALL_HEAD
        for score, _ in _attentions(_Wiring(model))
    )


def with_fp16_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which attentions read and write what was not rounded."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    wiring = _Wiring(copy)
    for score, mix in list(_attentions(wiring)):
        for product in (score, mix):
            product.input[:] = [wiring.before_rounding(name) for name in product.input]
        answer, rounded = mix.output[0], wiring.rounded(mix.output[0])
        for reader in wiring.readers.get(rounded, ()):
            reader.input[:] = [answer if name == rounded else name for name in reader.input]
    _drop_unread(copy.graph)
    return copy


class _Wiring:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = model.graph.node
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def before_rounding(self, name: str) -> str:
        """What a tensor was before it was rounded, if it was and is no weight."""
        found = name
        for kind in reversed(_ROUNDING):
            maker = self.makers.get(found)
            if maker is None or maker.op_type != kind:
                return name
            found = maker.input[0]
        return found

    def rounded(self, name: str) -> str:
        """A tensor after it is rounded, if it is for all that read it."""
        found = name
        for kind in _ROUNDING:
            readers = self.readers.get(found, [])
            if [each.op_type for each in readers] != [kind]:
                return name
            found = readers[0].output[0]
        return found


def _attentions(wiring: _Wiring) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """The products before and behind a softmax whose answer is rounded."""
    for node in wiring.nodes:
        if node.op_type != "Softmax":
            continue
        rounded = wiring.rounded(node.output[0])
        score, readers = wiring.makers.get(node.input[0]), wiring.readers.get(rounded, [])
        if rounded == node.output[0] or score is None or len(readers) != 1:
            continue
        if score.op_type == readers[0].op_type == "MatMul":
            yield score, readers[0]


def _drop_unread(graph: onnx.GraphProto) -> None:
    read = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            kept.append(node)
            read.update(node.input)
    del graph.node[:]
    graph.node.extend(reversed(kept))
