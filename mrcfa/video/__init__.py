"""Video in, segmented video out: sources, the pipeline, overlays, sinks and the live view."""
