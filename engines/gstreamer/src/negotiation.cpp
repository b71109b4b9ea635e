// Negotiation of caps, sizes, allocation and latency.
#include <string>
#include <utility>

#include "instance.hpp"

namespace mrcfa {
namespace {

/// What the element knows of its pads.
struct Ends {
  Output output;
  Extent frame;        ///< Zero if it is not known yet.
  std::string format;  ///< The format of frames; empty if it is not known yet.
};

/// Sets the formats that a pad may have: GRAY8 for masks that leave the element, or else frames.
void set_format(GstStructure* structure, GstPadDirection direction, const Ends& ends) {
  if (direction == GST_PAD_SRC && ends.output == Output::mask) {
    gst_structure_set(structure, "format", G_TYPE_STRING, "GRAY8", nullptr);
  } else if (!ends.format.empty()) {
    gst_structure_set(structure, "format", G_TYPE_STRING, ends.format.c_str(), nullptr);
  } else {
    GValue all = G_VALUE_INIT;
    g_value_init(&all, GST_TYPE_LIST);
    for (const char* name : {"RGB", "BGR", "NV12"}) {
      GValue one = G_VALUE_INIT;
      g_value_init(&one, G_TYPE_STRING);
      g_value_set_static_string(&one, name);
      gst_value_list_append_and_take_value(&all, &one);
    }
    gst_structure_take_value(structure, "format", &all);
  }
}

/// The caps of the other pad if the pad of this direction has `caps`: frames in the bundle's format
/// and size, or masks of its size. Other formats and sizes are left to videoconvert and videoscale.
GstCaps* across(GstCaps* caps, GstPadDirection direction, const Ends& ends) {
  GstCaps* carried = gst_caps_new_empty_simple("video/x-raw");
  set_format(gst_caps_get_structure(carried, 0), direction, ends);
  if (ends.frame.width > 0) {
    gst_caps_set_simple(carried, "width", G_TYPE_INT, ends.frame.width, "height", G_TYPE_INT,
                        ends.frame.height, nullptr);
  }
  GstCaps* made = gst_caps_intersect_full(caps, carried, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(carried);
  if (ends.output == Output::mask) {
    made = gst_caps_make_writable(made);
    for (guint i = 0; i < gst_caps_get_size(made); ++i) {
      GstStructure* structure = gst_caps_get_structure(made, i);
      set_format(structure, direction == GST_PAD_SINK ? GST_PAD_SRC : GST_PAD_SINK, ends);
      gst_structure_remove_fields(structure, "colorimetry", "chroma-site", nullptr);
    }
  }
  return made;
}

GstCaps* transform_caps(GstBaseTransform* base, GstPadDirection direction, GstCaps* caps,
                        GstCaps* filter) {
  GstMrcfa* const self = mrcfa_of(base);
  Ends ends{};
  {
    const std::lock_guard lock(self->parts->mutex);
    ends = {self->parts->output, self->parts->extent, self->parts->format};
    if (ends.frame.width == 0) {
      ends.output = self->parts->settings.output;
    }
  }
  GstCaps* made = across(caps, direction, ends);
  if (filter != nullptr) {
    GstCaps* const wanted = gst_caps_intersect_full(filter, made, GST_CAPS_INTERSECT_FIRST);
    gst_caps_unref(made);
    made = wanted;
  }
  return made;
}

/// Accepts any size and format, so that a wrong one gets the sentence of `check_fit` instead of
/// GStreamer's "not negotiated". Caps queries name the right ones, which is all that videoscale and
/// videoconvert need.
gboolean accept_caps(GstBaseTransform* base, GstPadDirection direction, GstCaps* caps) {
  GstPad* const pad = direction == GST_PAD_SINK ? base->sinkpad : base->srcpad;
  GstCaps* const possible = gst_pad_get_pad_template_caps(pad);
  const gboolean fits = gst_caps_is_subset(caps, possible);
  gst_caps_unref(possible);
  return fits;
}

/// Warns of frames that name another matrix or range than the bundle's: their colours are wrong.
void check_colours(GstMrcfa* self, const GstVideoInfo& frame) {
  const Info& info = self->parts->segmenter->info();
  if (info.layout != Layout::nv12) {
    return;
  }
  const GstVideoColorimetry& given = GST_VIDEO_INFO_COLORIMETRY(&frame);
  const bool hd = info.matrix == "bt709";
  const bool full = info.range == "full";
  const bool matrix_fits =
      given.matrix == GST_VIDEO_COLOR_MATRIX_UNKNOWN ||
      given.matrix == (hd ? GST_VIDEO_COLOR_MATRIX_BT709 : GST_VIDEO_COLOR_MATRIX_BT601);
  const bool range_fits =
      given.range == GST_VIDEO_COLOR_RANGE_UNKNOWN ||
      given.range == (full ? GST_VIDEO_COLOR_RANGE_0_255 : GST_VIDEO_COLOR_RANGE_16_235);
  if (!matrix_fits || !range_fits) {
    gchar* const name = gst_video_colorimetry_to_string(&given);
    GST_ELEMENT_WARNING(
        self, STREAM, FORMAT,
        ("the frames have colorimetry %s, but the bundle takes %s with %s range, so their colours "
         "are wrong; put videoconvert with that colorimetry before mrcfa, or export with --colour",
         name != nullptr ? name : "of their own", info.matrix.c_str(), info.range.c_str()),
        (nullptr));
    g_free(name);
  }
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
    check_colours(self, parts.in);
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

/// The only format in the caps; empty if there are several.
std::string format_of(const GstCaps* caps) {
  std::string made;
  for (guint i = 0; caps != nullptr && i < gst_caps_get_size(caps); ++i) {
    const char* const name = gst_structure_get_string(gst_caps_get_structure(caps, i), "format");
    if (name == nullptr || (i > 0 && made != name)) {
      return "";
    }
    made = name;
  }
  return made;
}

std::string misfit(const std::string& given, const std::string& takes) {
  return "the frame is " + given + ", but the bundle takes " + takes +
         "; put videoconvert before mrcfa, or see mrcfa export --input";
}

/// Warns if upstream offers only another size or format, because GStreamer's "not negotiated" names
/// no remedy.
void warn_of_misfit(GstMrcfa* self, GstQuery* query) {
  GstCaps* filter = nullptr;
  GstCaps* possible = nullptr;
  gst_query_parse_caps(query, &filter);
  gst_query_parse_caps_result(query, &possible);
  const Extent given = extent_of(filter);
  const std::string format = format_of(filter);
  std::string sentence;
  {
    const std::lock_guard lock(self->parts->mutex);
    const Parts& parts = *self->parts;
    const bool sized = given.width != 0 && given.height != 0;
    if (parts.extent.width == 0 || gst_caps_is_empty(possible) == FALSE) {
      return;
    }
    if (!format.empty() && format != parts.format) {
      sentence = misfit(format, parts.format);
    } else if (sized && !(given == parts.extent)) {
      sentence = misfit(given, parts.extent);
    }
    if (sentence.empty() || std::exchange(self->parts->warned, true)) {
      return;
    }
  }
  GST_ELEMENT_WARNING(self, STREAM, FORMAT, ("%s", sentence.c_str()), (nullptr));
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
    warn_of_misfit(mrcfa_of(base), query);
  }
  return TRUE;
}

}  // namespace

bool check_fit(GstMrcfa* self, GstCaps* caps) {
  const Extent takes = self->parts->segmenter->extent();
  const std::string format = self->parts->segmenter->format();
  const std::string named = format_of(caps);
  if (!named.empty() && named != format) {
    GST_ELEMENT_ERROR(self, STREAM, FORMAT, ("%s", misfit(named, format).c_str()), (nullptr));
    return false;
  }
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
