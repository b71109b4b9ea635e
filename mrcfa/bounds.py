"""What a file from elsewhere may claim, checked before anything is allocated for it.

Far above what an export writes, far below what hurts. C++ has the same table
(engines/cpp/src/bounds.hpp), and tests/golden/manifests.json tries it in both languages.
"""

MANIFEST_BYTES = 4 << 20
LABELS_BYTES = 1 << 20
DEPTH = 32
"""Objects and lists inside each other."""
TEXT = 4096
"""Characters of a text or a name."""
ENTRIES = 1 << 16
"""Of one object or list."""
NUMBER = 2**63
"""Numbers lie between this and its negative, both excluded."""

FEWEST_CLASSES, MOST_CLASSES = 2, 255
"""A uint8 mask holds that many, and one value for pixels without ground truth."""
STREAMS = 32
"""Of a bundle. An export proves each stream, which takes the square of their number."""
SIDE = 1 << 14
"""Pixels along an edge of a frame or of the network's input."""
ELEMENTS = 2**31 - 1
"""Of a tensor, as TensorRT bounds them."""
AXES = 8
TENSORS = 32
"""At one end of a graph."""
VARIANTS = 32
ENGINES = 256
FILES = 1024

NUMBERS = 32
"""In a list of a model's hyperparameters."""
BLOCKS = 64
"""Of one stage of the encoder."""
PARAMETERS = 250_000_000
"""Of the encoder's blocks: three times those of the largest backbone."""
CHANNELS = 8192
AFFINITY_CHANNELS = 16
KERNEL = 31
OFFSET = 1000
"""Frames between a reference and its target."""

EXPECTED_BYTES = 1 << 30
"""Of the reference's masks, unpacked."""
EXPECTED_FRAMES = 1000
"""Of the built-in clip, which is made anew to compare them."""

FIELDS = 1 << 22
"""Of an ONNX file as protobuf counts them."""
NODES = 1 << 20
"""Of a graph with its functions written out."""
BODIES = 8
"""Graphs inside each other."""
