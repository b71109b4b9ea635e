"""Streams of any backend: frames in, masks out."""
