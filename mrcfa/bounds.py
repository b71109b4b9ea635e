"""Limits for values read from untrusted files, checked before anything is allocated for them.

They are far above what an export writes and far below what could harm a machine. C++ has the same
table (engines/cpp/src/bounds.hpp); tests/golden/manifests.json tests it in both languages.
"""

MANIFEST_BYTES = 4 << 20
LABELS_BYTES = 1 << 20
DEPTH = 32
"""Largest nesting depth of JSON objects and lists."""
TEXT = 4096
"""Largest number of characters of one text or name."""
ENTRIES = 1 << 16
"""Largest number of entries of one object or list."""
NUMBER = 2**63
"""Exclusive limit of the absolute value of a number."""

FEWEST_CLASSES, MOST_CLASSES = 2, 255
"""A uint8 mask holds 255 classes and one value for pixels without ground truth."""
STREAMS = 32
"""Largest number of streams of a bundle; the time of an export grows with its square."""
SIDE = 1 << 14
"""Largest height or width of a frame or of the network's input, in pixels."""
ELEMENTS = 2**31 - 1
"""Largest number of elements of one tensor, which is also TensorRT's limit."""
AXES = 8
TENSORS = 32
"""Largest number of inputs, or of outputs, of one graph."""
VARIANTS = 32
ENGINES = 256
FILES = 1024

NUMBERS = 32
"""Largest number of entries in one list of hyperparameters, such as the references."""
BLOCKS = 64
"""Largest number of blocks in one stage of the encoder."""
PARAMETERS = 250_000_000
"""Largest number of parameters in the encoder's blocks, three times that of MiT-B5."""
CHANNELS = 8192
AFFINITY_CHANNELS = 16
KERNEL = 31
OFFSET = 1000
"""Largest distance between a reference and its target, in frames."""

EXPECTED_BYTES = 1 << 30
"""Largest size of the reference masks in `expected.npz` after unpacking, in bytes."""
EXPECTED_FRAMES = 1000
"""Largest number of reference masks, because the built-in clip is regenerated to compare them."""

FIELDS = 1 << 22
"""Largest number of protobuf fields in one ONNX file."""
NODES = 1 << 20
"""Largest number of nodes of one graph after its functions are inlined."""
BODIES = 8
"""Largest nesting depth of graphs inside nodes."""
