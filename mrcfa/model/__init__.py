"""The reference model: the paper in plain PyTorch, its configuration and its weights."""
