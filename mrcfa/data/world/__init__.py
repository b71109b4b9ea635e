"""The sample world: synthetic street scenes with exact masks, made with numpy from a seed."""
