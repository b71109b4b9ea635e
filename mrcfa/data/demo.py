"""The trained weights in the box: a b0 that knows the sample world, and nothing else."""

from pathlib import Path

WEIGHTS = Path(__file__).with_name("demo.safetensors")
"""FP16, with config and labels as any checkpoint of `mrcfa train` has them."""
