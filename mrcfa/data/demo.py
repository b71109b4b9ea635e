"""The demo weights of this package: a b0 trained only on the sample world."""

from pathlib import Path

WEIGHTS = Path(__file__).with_name("demo.safetensors")
"""FP16 weights with config and labels, like every checkpoint of `mrcfa train`."""
