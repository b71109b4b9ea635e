"""Streams: frames in, masks out, whatever the backend."""
