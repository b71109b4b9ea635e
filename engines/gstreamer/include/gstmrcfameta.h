/* Reads the mask that `mrcfa output=meta` attaches to a frame. It needs GStreamer alone and nothing to
 * link. Other languages call gst_buffer_get_custom_meta() and read the fields of its structure:
 * `mask`, a GstBuffer, `width` and `height`. */
#ifndef GST_MRCFA_META_H
#define GST_MRCFA_META_H

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_MRCFA_META_NAME "GstMrcfaMeta"

/**
 * gst_buffer_get_mrcfa_mask:
 * @buffer: a frame that passed through `mrcfa output=meta`
 * @width: (out) (optional): the width of mask and frame
 * @height: (out) (optional): the height of mask and frame
 *
 * Returns: (transfer none) (nullable): height × width bytes, a class per pixel, rows without padding.
 *   Classes that are not among the element's `classes` are 255. %NULL if the frame has no mask. The
 *   mask lives as long as the buffer, unless gst_buffer_ref() keeps it.
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
