// Streaming: events and frames.
#include <exception>
#include <utility>

#include "instance.hpp"

namespace mrcfa {
namespace {

gboolean sink_event(GstBaseTransform* base, GstEvent* event) {
  GstMrcfa* const self = mrcfa_of(base);
  const GstEventType type = GST_EVENT_TYPE(event);
  if (type == GST_EVENT_STREAM_START || type == GST_EVENT_FLUSH_STOP) {
    restart(self);
  }
  if (type == GST_EVENT_CAPS) {
    GstCaps* caps = nullptr;
    gst_event_parse_caps(event, &caps);
    if (!check_fit(self, caps)) {
      gst_event_unref(event);
      return FALSE;
    }
  }
  return parent_class()->sink_event(base, event);
}

/// Applies new values of `alpha` and `classes`; unknown classes change nothing.
void repaint(GstMrcfa* self) {
  Parts& parts = *self->parts;
  Settings settings;
  {
    const std::lock_guard lock(parts.mutex);
    if (!std::exchange(parts.repaint, false)) {
      return;
    }
    settings = parts.settings;
  }
  try {
    parts.segmenter->repaint(settings.alpha, settings.classes);
  } catch (const std::exception& error) {
    GST_ELEMENT_WARNING(self, RESOURCE, SETTINGS, ("%s", error.what()), (nullptr));
  }
}

/// Lets the base class drop late frames and post them. Its `discont` is true after such a gap too,
/// which is not a gap in the video.
GstFlowReturn submit_input_buffer(GstBaseTransform* base, gboolean discont, GstBuffer* buffer) {
  GstMrcfa* const self = mrcfa_of(base);
  Parts& parts = *self->parts;
  bool reset = false;
  {
    const std::lock_guard lock(parts.mutex);
    reset = GST_BUFFER_IS_DISCONT(buffer) && parts.settings.reset_on_discont;
  }
  if (reset) {
    restart(self);
  }
  repaint(self);
  const GstFlowReturn flow = parent_class()->submit_input_buffer(base, discont, buffer);
  if (flow == GST_BASE_TRANSFORM_FLOW_DROPPED) {
    const std::lock_guard lock(parts.mutex);
    ++parts.dropped;
  }
  return flow;
}

/// Passes on the frame, or a copy that shares its memory. So pixels are copied only if they are
/// written while others hold them, and never for a meta.
GstFlowReturn prepare_output_buffer(GstBaseTransform* base, GstBuffer* in, GstBuffer** out) {
  if (mrcfa_of(base)->parts->output == Output::mask) {
    return parent_class()->prepare_output_buffer(base, in, out);
  }
  *out = gst_buffer_is_writable(in) ? in : gst_buffer_copy(in);
  return GST_FLOW_OK;
}

/// Runs `work`, which segments one frame, and turns its errors into element errors.
template <class Work>
GstFlowReturn segment(GstMrcfa* self, Work work) {
  try {
    work(*self->parts->segmenter);
  } catch (const std::exception& error) {
    GST_ELEMENT_ERROR(self, LIBRARY, FAILED, ("%s", error.what()), (nullptr));
    return GST_FLOW_ERROR;
  }
  const std::lock_guard lock(self->parts->mutex);
  ++self->parts->processed;
  return GST_FLOW_OK;
}

GstFlowReturn transform(GstBaseTransform* base, GstBuffer* in, GstBuffer* out) {
  const Parts& parts = *mrcfa_of(base)->parts;
  return segment(mrcfa_of(base),
                 [&](Segmenter& segmenter) { segmenter.mask({parts.in, in}, {parts.out, out}); });
}

GstFlowReturn transform_ip(GstBaseTransform* base, GstBuffer* buffer) {
  const Parts& parts = *mrcfa_of(base)->parts;
  return segment(mrcfa_of(base), [&](Segmenter& segmenter) {
    if (parts.output == Output::overlay) {
      segmenter.overlay({parts.in, buffer});
    } else {
      segmenter.attach({parts.in, buffer});
    }
  });
}

}  // namespace

void restart(GstMrcfa* self) {
  Parts& parts = *self->parts;
  if (parts.segmenter != nullptr && parts.segmenter->restart()) {
    GST_DEBUG_OBJECT(self, "a new video begins");
    const std::lock_guard lock(parts.mutex);
    ++parts.resets;
  }
}

void install_streaming(GstBaseTransformClass* base) {
  base->sink_event = sink_event;
  base->submit_input_buffer = submit_input_buffer;
  base->prepare_output_buffer = prepare_output_buffer;
  base->transform = transform;
  base->transform_ip = transform_ip;
}

}  // namespace mrcfa
