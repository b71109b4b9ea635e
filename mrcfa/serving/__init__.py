"""Model repositories that serve bundles with NVIDIA Triton."""
