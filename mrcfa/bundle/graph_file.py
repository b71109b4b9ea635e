"""A check of an ONNX file before a runtime loads it, on machines that have no `onnx`.

A graph comes from elsewhere. It is refused if it keeps tensors in other files, whose content no
hash covers, if it has nodes that may run without end, or if its ends are not what the manifest
says. C++ has the same (engines/cpp/src/graph_file.cpp).

The file is a protobuf message: fields of a number and a wire type, in any order. Every occurrence
of a field is looked at, so that no runtime sees one that was not seen here.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mrcfa.bounds import BODIES, FIELDS, NODES
from mrcfa.bundle.manifest import Graph, TensorSpec
from mrcfa.data.decoding import Damage
from mrcfa.errors import Damaged

_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Bytes of the other wire types; groups are in no ONNX file."""
_NO_GRAPH = "it is no ONNX graph"
_DTYPES = {1: "float32", 2: "uint8", 6: "int32", 10: "float16"}
_STANDARD = ("", "ai.onnx")

_INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        **{5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
        **{22: "sparse tensor", 23: "sparse tensor"},
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
}
"""Which fields of a message hold messages that matter here."""


def check_graph(content: bytes, path: Path, expected: Graph | None = None) -> None:
    """Raise `Damaged` unless the ONNX file is harmless and has the ends that are expected."""
    try:
        reader = _Reader(content)
        reader.check()
        if expected is None:
            return
        _check_ends("input", reader.ends(11), expected.inputs)
        _check_ends("output", reader.ends(12), expected.outputs)
    except Damage as damage:
        raise Damaged(f"{path} cannot be used ({damage}); export the bundle anew") from None


Field = tuple[int, int, int, int]
"""Number, wire type, start and end of the content; a varint has its value and 0 instead."""


def _varint(content: bytes, place: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while place < end and shift < 64:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise Damage(_NO_GRAPH)


class _Reader:
    """Walks through all messages of a model."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._functions: Counter[tuple[bytes, bytes]] = Counter()
        """Nodes of each function."""
        self._calls: Counter[tuple[bytes, bytes]] = Counter()
        """Nodes of the graphs, by domain and operator."""
        self._calls_in_functions: set[tuple[bytes, bytes]] = set()
        self._seen = 0
        """Fields that were read."""

    def check(self) -> None:
        self._message("model", 0, len(self._content), None, 0)
        if self._functions.keys() & self._calls_in_functions:
            raise Damage("a function calls a function")
        written_out = sum(
            times * self._functions.get(name, 1) for name, times in self._calls.items()
        )
        if written_out > NODES:
            raise Damage(f"it has more than {NODES} nodes")

    def _message(
        self, kind: str, start: int, end: int, function: tuple[bytes, bytes] | None, depth: int
    ) -> bool:
        """Look at a message and all inside; True for an attribute that holds graphs."""
        if kind == "graph":
            depth += 1
            if depth > BODIES:
                raise Damage("its graphs are nested too deeply")
        elif kind == "function":
            function = self._name(start, end, 1, 10)
            self._functions[function] += 0
        inside = _INSIDE[kind]
        has_body = False
        for number, wire, place, last in self._fields(start, end):
            if wire != _BYTES or number not in inside:
                continue
            within = inside[number]
            if within == "tensor":
                self._tensor(place, last)
                continue
            held = self._message(within, place, last, function, depth)
            has_body |= held or (kind == "attribute" and within == "graph")
        if kind == "node":
            self._node(start, end, function, has_body)
            return False
        if kind == "function" and has_body:
            raise Damage("a function has a graph for a parameter")
        return has_body and kind == "attribute"

    def _node(
        self, start: int, end: int, function: tuple[bytes, bytes] | None, has_body: bool
    ) -> None:
        operator, domain = name = self._name(start, end, 4, 7)
        if has_body and (operator != b"Scan" or domain.decode(errors="replace") not in _STANDARD):
            shown = operator.decode(errors="replace")
            raise Damage(f"its node {shown!r} has a graph inside, and only a Scan may")
        if function is None:
            self._calls[name] += 1
        else:
            self._functions[function] += 1
            self._calls_in_functions.add(name)

    def _name(self, start: int, end: int, *numbers: int) -> tuple[bytes, bytes]:
        """Two texts of a message; protobuf takes the last of several."""
        found = dict.fromkeys(numbers, b"")
        for number, wire, place, last in self._fields(start, end):
            if wire == _BYTES and number in found:
                found[number] = self._content[place:last]
        first, second = (found[number] for number in numbers)
        return first, second

    def _tensor(self, start: int, end: int) -> None:
        for number, wire, value, _ in self._fields(start, end):
            if (number == 13 and wire == _BYTES) or (number == 14 and wire == _VARINT and value):
                raise Damage("it keeps tensors in another file, whose content no hash covers")

    def _fields(self, place: int, end: int) -> Iterator[Field]:
        content = self._content
        while place < end:
            self._seen += 1
            tag, place = _varint(content, place, end)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                value, last = _varint(content, place, end)
                found = (number, wire, value, 0)
            else:
                if wire == _BYTES:
                    length, place = _varint(content, place, end)
                else:
                    length = _FIXED.get(wire, len(content))
                last = place + length
                found = (number, wire, place, last)
            if last > end or not 0 < number < 1 << 29:
                raise Damage(_NO_GRAPH)
            if self._seen > FIELDS:
                raise Damage(f"it has more than {FIELDS} fields")
            yield found
            place = last

    def ends(self, number: int) -> dict[str, tuple[str, list[int]]]:
        """Type and shape of the graph's inputs (field 11) or outputs (12), by name."""
        found = {}
        for graph in self._inside((0, len(self._content)), 7):
            for value in self._inside(graph, number):
                names = [self._content[slice(*span)] for span in self._inside(value, 1)]
                dtype, shape = "", []
                for kind in self._inside(value, 2):
                    for tensor in self._inside(kind, 1):
                        for field, wire, code, _ in self._fields(*tensor):
                            if field == 1 and wire == _VARINT:
                                dtype = _DTYPES.get(code, f"type {code}")
                        for axes in self._inside(tensor, 2):
                            shape += [self._length(axis) for axis in self._inside(axes, 1)]
                name = names[-1].decode(errors="replace") if names else ""
                found[name] = dtype, shape
        return found

    def _inside(self, place: tuple[int, int], wanted: int) -> list[tuple[int, int]]:
        """Start and end of every message or text in one field."""
        return [
            (start, end)
            for number, wire, start, end in self._fields(*place)
            if number == wanted and wire == _BYTES
        ]

    def _length(self, axis: tuple[int, int]) -> int:
        """The length of an axis; 0 if it is dynamic."""
        found = 0
        for number, wire, value, _ in self._fields(*axis):
            if number in (1, 2):
                found = value if (number, wire) == (1, _VARINT) else 0
        return found


def _check_ends(
    end: str, found: dict[str, tuple[str, list[int]]], expected: tuple[TensorSpec, ...]
) -> None:
    for spec in expected:
        if spec.name not in found:
            raise Damage(f"it has no {end} {spec.name!r}, which the manifest names")
        dtype, shape = found.pop(spec.name)
        if (dtype, shape) != (spec.dtype, list(spec.shape)):
            raise Damage(
                f"its {end} {spec.name!r} is {dtype} {shape}, "
                f"and the manifest says {spec.dtype} {list(spec.shape)}"
            )
    for name in found:
        raise Damage(f"it has the {end} {name!r}, which the manifest does not name")
