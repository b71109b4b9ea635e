"""Training: the paper's recipe, the clips it is shown, the loop, its checkpoints."""
