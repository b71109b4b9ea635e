// The plugin that GStreamer loads: the element, and the meta that carries masks.
#include <gst/video/video.h>

#include <array>

#include "element.hpp"
#include "gstmrcfameta.h"

#define PACKAGE "mrcfa"

namespace {

/// Copies a mask to a copy of its frame, and to the frame in another format of the same size.
gboolean follow(GstBuffer* to, GstCustomMeta* meta, GstBuffer*, GQuark type, gpointer data,
                gpointer) {
  if (GST_VIDEO_META_TRANSFORM_IS_SCALE(type)) {
    const auto* const change = static_cast<const GstVideoMetaTransform*>(data);
    if (change->in_info->width != change->out_info->width ||
        change->in_info->height != change->out_info->height) {
      return FALSE;
    }
  } else if (!GST_META_TRANSFORM_IS_COPY(type)) {
    return FALSE;
  }
  GstStructure* const made =
      gst_custom_meta_get_structure(gst_buffer_add_custom_meta(to, GST_MRCFA_META_NAME));
  for (const char* field : {"mask", "width", "height"}) {
    const GstStructure* const given = gst_custom_meta_get_structure(meta);
    gst_structure_set_value(made, field, gst_structure_get_value(given, field));
  }
  return TRUE;
}

/// Registers the meta. Its tags tell elements that move pixels that the mask depends on their
/// places.
void register_meta() {
  static std::array<const char*, 4> tags = {GST_META_TAG_VIDEO_STR, GST_META_TAG_VIDEO_SIZE_STR,
                                            GST_META_TAG_VIDEO_ORIENTATION_STR, nullptr};
  gst_meta_register_custom(GST_MRCFA_META_NAME, tags.data(), follow, nullptr, nullptr);
}

gboolean plugin_init(GstPlugin* plugin) {
  register_meta();
  return gst_element_register(plugin, "mrcfa", GST_RANK_NONE, GST_TYPE_MRCFA);
}

}  // namespace

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, mrcfa, "MRCFA video semantic segmentation",
                  plugin_init, MRCFA_VERSION, "Apache 2.0", PACKAGE, "mrcfa")
