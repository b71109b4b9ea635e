"""Serving bundles with NVIDIA Triton: model repositories, and what server and client agree on."""
