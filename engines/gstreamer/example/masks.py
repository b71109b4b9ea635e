#!/usr/bin/python3
"""masks.py BUNDLE [SOURCE]: frames through `mrcfa`, and their masks, by gst-python.

The Python is the system's: no virtual environment has the bindings of GStreamer.
"""

import sys

import gi

gi.require_version("Gst", "1.0")  # it has to come before the import that it is about
from gi.repository import Gst  # noqa: E402

Gst.init(None)
bundle, source = (*sys.argv[1:], "v4l2src ! videoconvert ! videoscale")[:2]
pipeline = Gst.parse_launch(f"{source} ! mrcfa bundle={bundle} output=meta ! appsink name=sink")
pipeline.set_state(Gst.State.PLAYING)
while sample := pipeline.get_by_name("sink").emit("pull-sample"):
    mask = sample.get_buffer().get_custom_meta("GstMrcfaMeta").get_structure().get_value("mask")
    classes = set(mask.extract_dup(0, mask.get_size()))  # a class per pixel, rows without padding
    print(f"{mask.get_size()} pixels of the classes {sorted(classes)}")
pipeline.set_state(Gst.State.NULL)
