"""Training: the paper's recipe, its samples, the loop and checkpoints."""
