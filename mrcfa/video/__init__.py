"""Frames from files, cameras and pipes, through a segmenter, to pictures."""
