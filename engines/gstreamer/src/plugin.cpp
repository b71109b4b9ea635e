// What GStreamer loads: the element, and the meta with which it hands masks on.
#include <gst/video/video.h>

#include <array>

#include "element.hpp"
#include "gstmrcfameta.h"

#define PACKAGE "mrcfa"

namespace {

/// A mask belongs to the pixels as they lie: elements that scale, crop or turn them drop it.
void register_meta() {
  static std::array<const char*, 4> tags = {
      GST_META_TAG_VIDEO_STR, GST_META_TAG_VIDEO_SIZE_STR, GST_META_TAG_VIDEO_ORIENTATION_STR,
      nullptr};
  gst_meta_register_custom(GST_MRCFA_META_NAME, tags.data(), nullptr, nullptr, nullptr);
}

gboolean plugin_init(GstPlugin* plugin) {
  register_meta();
  return gst_element_register(plugin, "mrcfa", GST_RANK_NONE, GST_TYPE_MRCFA);
}

}  // namespace

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, mrcfa,
                  "MRCFA video semantic segmentation", plugin_init, MRCFA_VERSION, "Apache 2.0",
                  PACKAGE, "mrcfa")
