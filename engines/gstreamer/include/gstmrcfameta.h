/* How an application reads the mask that `mrcfa output=meta` attaches to a frame. Needs GStreamer
 * alone, nothing to link. Other languages have the same by gst_buffer_get_custom_meta() and the
 * fields of its structure: `mask`, a GstBuffer, `width` and `height`. */
#ifndef GST_MRCFA_META_H
#define GST_MRCFA_META_H

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_MRCFA_META_NAME "GstMrcfaMeta"

/**
 * gst_buffer_get_mrcfa_mask:
 * @buffer: a frame that passed through `mrcfa output=meta`
 * @width: (out) (optional): of the mask, which is the frame's
 * @height: (out) (optional): likewise
 *
 * Returns: (transfer none) (nullable): height × width bytes, a class per pixel, rows without padding;
 *   classes that the element's `classes` left out are 255. %NULL if the frame has no mask. It lives
 *   as long as the buffer, unless gst_buffer_ref() keeps it.
 */
static inline GstBuffer *
gst_buffer_get_mrcfa_mask (GstBuffer * buffer, gint * width, gint * height)
{
  GstCustomMeta *meta = gst_buffer_get_custom_meta (buffer, GST_MRCFA_META_NAME);
  GstStructure *fields = meta ? gst_custom_meta_get_structure (meta) : NULL;
  const GValue *mask = fields ? gst_structure_get_value (fields, "mask") : NULL;

  if (mask == NULL)
    return NULL;
  if (width != NULL)
    gst_structure_get_int (fields, "width", width);
  if (height != NULL)
    gst_structure_get_int (fields, "height", height);
  return gst_value_get_buffer (mask);
}

G_END_DECLS

#endif
