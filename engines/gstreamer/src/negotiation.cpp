// Negotiation of caps, sizes, allocation and latency.
#include <string>
#include <utility>

#include "instance.hpp"

namespace mrcfa {
namespace {

const char* format_of(GstPadDirection direction, Output output) {
  return direction == GST_PAD_SRC && output == Output::mask ? "GRAY8" : "RGB";
}

/// The caps of the other pad if the pad of this direction has `caps`: RGB, or GRAY8 for masks that
/// leave the element, of the bundle's size. Other sizes are left to videoscale.
GstCaps* across(GstCaps* caps, GstPadDirection direction, Output output, Extent frame) {
  const char* const here = format_of(direction, output);
  const char* const there =
      format_of(direction == GST_PAD_SINK ? GST_PAD_SRC : GST_PAD_SINK, output);
  GstCaps* carried = gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, here, nullptr);
  if (frame.width > 0) {
    gst_caps_set_simple(carried, "width", G_TYPE_INT, frame.width, "height", G_TYPE_INT,
                        frame.height, nullptr);
  }
  GstCaps* made = gst_caps_intersect_full(caps, carried, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(carried);
  if (output == Output::mask) {
    made = gst_caps_make_writable(made);
    for (guint i = 0; i < gst_caps_get_size(made); ++i) {
      GstStructure* structure = gst_caps_get_structure(made, i);
      gst_structure_set(structure, "format", G_TYPE_STRING, there, nullptr);
      gst_structure_remove_fields(structure, "colorimetry", "chroma-site", nullptr);
    }
  }
  return made;
}

GstCaps* transform_caps(GstBaseTransform* base, GstPadDirection direction, GstCaps* caps,
                        GstCaps* filter) {
  GstMrcfa* const self = mrcfa_of(base);
  Output output{};
  Extent extent;
  {
    const std::lock_guard lock(self->parts->mutex);
    extent = self->parts->extent;
    output = extent.width > 0 ? self->parts->output : self->parts->settings.output;
  }
  GstCaps* made = across(caps, direction, output, extent);
  if (filter != nullptr) {
    GstCaps* const wanted = gst_caps_intersect_full(filter, made, GST_CAPS_INTERSECT_FIRST);
    gst_caps_unref(made);
    made = wanted;
  }
  return made;
}

/// Accepts any size, so that a wrong one gets the sentence of `check_size` instead of GStreamer's
/// "not negotiated". Caps queries name the right size, which is all that videoscale needs.
gboolean accept_caps(GstBaseTransform* base, GstPadDirection direction, GstCaps* caps) {
  GstPad* const pad = direction == GST_PAD_SINK ? base->sinkpad : base->srcpad;
  GstCaps* const possible = gst_pad_get_pad_template_caps(pad);
  const gboolean fits = gst_caps_is_subset(caps, possible);
  gst_caps_unref(possible);
  return fits;
}

gboolean set_caps(GstBaseTransform* base, GstCaps* in, GstCaps* out) {
  GstMrcfa* const self = mrcfa_of(base);
  Parts& parts = *self->parts;
  if (gst_video_info_from_caps(&parts.in, in) == FALSE ||
      gst_video_info_from_caps(&parts.out, out) == FALSE) {
    return FALSE;
  }
  if (parts.caps == nullptr || gst_caps_is_equal(parts.caps, in) == FALSE) {
    restart(self);
    gst_caps_replace(&parts.caps, in);
  }
  const int rate = GST_VIDEO_INFO_FPS_N(&parts.in);
  const int per = GST_VIDEO_INFO_FPS_D(&parts.in);
  const GstClockTime duration = rate > 0 ? gst_util_uint64_scale_int(GST_SECOND, per, rate) : 0;
  bool changed = false;
  {
    const std::lock_guard lock(parts.mutex);
    changed = parts.duration != duration;
    parts.duration = duration;
  }
  if (changed) {
    gst_element_post_message(GST_ELEMENT(self), gst_message_new_latency(GST_OBJECT(self)));
  }
  return TRUE;
}

gboolean get_unit_size(GstBaseTransform*, GstCaps* caps, gsize* size) {
  GstVideoInfo info;
  const gboolean known = gst_video_info_from_caps(&info, caps);
  *size = known != FALSE ? GST_VIDEO_INFO_SIZE(&info) : 0;
  return known;
}

/// The size of a buffer: a frame stays a frame, however its rows are padded.
gboolean transform_size(GstBaseTransform* base, GstPadDirection, GstCaps*, gsize, GstCaps* caps,
                        gsize* size) {
  return get_unit_size(base, caps, size);
}

gboolean propose_allocation(GstBaseTransform* base, GstQuery* decided, GstQuery* query) {
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  return parent_class()->propose_allocation(base, decided, query);
}

/// The only size in the caps, in any number of formats; zero if there are several.
Extent extent_of(const GstCaps* caps) {
  Extent made;
  for (guint i = 0; caps != nullptr && i < gst_caps_get_size(caps); ++i) {
    const GstStructure* const structure = gst_caps_get_structure(caps, i);
    Extent extent;
    gst_structure_get_int(structure, "width", &extent.width);
    gst_structure_get_int(structure, "height", &extent.height);
    if (i > 0 && !(extent == made)) {
      return {};
    }
    made = extent;
  }
  return made;
}

std::string misfit(Extent given, Extent takes) {
  const auto shown = [](Extent extent) {
    return std::to_string(extent.height) + "x" + std::to_string(extent.width);
  };
  return "the frame is " + shown(given) + ", but the bundle takes " + shown(takes) +
         "; put videoscale before mrcfa, or resize in the graphs: mrcfa export --frame " +
         shown(given);
}

/// Warns if upstream offers only another size, because GStreamer's "not negotiated" names no
/// remedy.
void warn_of_size(GstMrcfa* self, GstQuery* query) {
  GstCaps* filter = nullptr;
  GstCaps* possible = nullptr;
  gst_query_parse_caps(query, &filter);
  gst_query_parse_caps_result(query, &possible);
  const Extent given = extent_of(filter);
  Extent takes;
  {
    const std::lock_guard lock(self->parts->mutex);
    takes = self->parts->extent;
    if (takes.width == 0 || given.width == 0 || given.height == 0 || given == takes ||
        gst_caps_is_empty(possible) == FALSE || std::exchange(self->parts->warned, true)) {
      return;
    }
  }
  GST_ELEMENT_WARNING(self, STREAM, FORMAT, ("%s", misfit(given, takes).c_str()), (nullptr));
}

/// Adds a frame's duration to the latency: an element that keeps pace holds no frame longer.
void add_latency(GstMrcfa* self, GstQuery* query) {
  gboolean live = FALSE;
  GstClockTime least = 0;
  GstClockTime most = 0;
  gst_query_parse_latency(query, &live, &least, &most);
  const std::lock_guard lock(self->parts->mutex);
  const GstClockTime own = self->parts->duration;
  gst_query_set_latency(query, live, least + own,
                        GST_CLOCK_TIME_IS_VALID(most) ? most + own : most);
}

gboolean query(GstBaseTransform* base, GstPadDirection direction, GstQuery* query) {
  if (parent_class()->query(base, direction, query) == FALSE) {
    return FALSE;
  }
  if (direction == GST_PAD_SRC && GST_QUERY_TYPE(query) == GST_QUERY_LATENCY) {
    add_latency(mrcfa_of(base), query);
  } else if (direction == GST_PAD_SINK && GST_QUERY_TYPE(query) == GST_QUERY_CAPS) {
    warn_of_size(mrcfa_of(base), query);
  }
  return TRUE;
}

}  // namespace

bool check_size(GstMrcfa* self, GstCaps* caps) {
  const Extent takes = self->parts->segmenter->extent();
  const Extent given = extent_of(caps);
  if (given == takes) {
    return true;
  }
  GST_ELEMENT_ERROR(self, STREAM, FORMAT, ("%s", misfit(given, takes).c_str()), (nullptr));
  return false;
}

void install_negotiation(GstBaseTransformClass* base) {
  base->transform_caps = transform_caps;
  base->accept_caps = accept_caps;
  base->set_caps = set_caps;
  base->get_unit_size = get_unit_size;
  base->transform_size = transform_size;
  base->propose_allocation = propose_allocation;
  base->query = query;
}

}  // namespace mrcfa
