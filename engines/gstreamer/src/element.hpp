// The GStreamer element `mrcfa`.
#pragma once

#include <gst/gst.h>

#define GST_TYPE_MRCFA (gst_mrcfa_get_type())
GType gst_mrcfa_get_type();
