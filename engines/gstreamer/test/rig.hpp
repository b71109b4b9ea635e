// A `mrcfa` element between two pads of a GstHarness, with helpers for its tests.
#pragma once

#include <gst/check/gstharness.h>
#include <gst/video/video.h>

#include <expect.hpp>
#include <utility>

#include "gstmrcfameta.h"

constexpr const char* kFormat = "video/x-raw,format=RGB,width=160,height=96,framerate=25/1";
constexpr GstClockTime kDuration = GST_SECOND / 25;

inline Bytes bytes_of(GstBuffer* buffer) {
  GstMapInfo map;
  gst_buffer_map(buffer, &map, GST_MAP_READ);
  Bytes made(map.data, map.data + map.size);
  gst_buffer_unmap(buffer, &map);
  return made;
}

inline GstBuffer* buffer_of(const Bytes& frame, int number) {
  GstBuffer* buffer = gst_buffer_new_memdup(frame.data(), frame.size());
  GST_BUFFER_PTS(buffer) = static_cast<GstClockTime>(number) * kDuration;
  GST_BUFFER_DURATION(buffer) = kDuration;
  return buffer;
}

/// The sentences of one kind on the bus: errors or warnings.
inline std::vector<std::string> sentences(GstBus* bus, GstMessageType type) {
  std::vector<std::string> made;
  while (GstMessage* message = gst_bus_pop_filtered(bus, type)) {
    GError* error = nullptr;
    if (type == GST_MESSAGE_ERROR) {
      gst_message_parse_error(message, &error, nullptr);
    } else {
      gst_message_parse_warning(message, &error, nullptr);
    }
    made.emplace_back(error->message);
    g_error_free(error);
    gst_message_unref(message);
  }
  return made;
}

class Rig {
 public:
  template <class... Properties>
  explicit Rig(const char* bundle, Properties... properties)
      : element(gst_element_factory_make("mrcfa", nullptr)), bus(gst_bus_new()) {
    g_object_set(element, "bundle", bundle, "backend", "onnxruntime:cpu", properties..., nullptr);
    gst_element_set_bus(element, bus);
    harness = gst_harness_new_with_element(element, "sink", "src");
  }
  ~Rig() {
    gst_element_set_bus(element, nullptr);  // its messages hold the element
    gst_harness_teardown(harness);
    gst_object_unref(element);
    gst_object_unref(bus);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  /// Sends stream start, caps and segment.
  Rig& begin(const char* caps = kFormat) {
    gst_harness_set_src_caps_str(harness, caps);
    return *this;
  }

  /// The buffer that leaves the element for one that enters; null if none does.
  GstBuffer* push(GstBuffer* buffer) {
    gst_harness_push(harness, buffer);
    return gst_harness_try_pull(harness);
  }

  /// The bytes that leave the element for a frame; none if it was dropped.
  Bytes operator()(const Bytes& frame, int number = 0) {
    GstBuffer* made = push(buffer_of(frame, number));
    Bytes bytes = made == nullptr ? Bytes() : bytes_of(made);
    if (made != nullptr) {
      gst_buffer_unref(made);
    }
    return bytes;
  }

  guint64 stat(const char* name) const {
    GstStructure* stats = nullptr;
    g_object_get(element, "stats", &stats, nullptr);
    guint64 value = 0;
    expect(gst_structure_get_uint64(stats, name, &value) != FALSE, name);
    gst_structure_free(stats);
    return value;
  }

  GstElement* element;
  GstBus* bus;
  GstHarness* harness = nullptr;
};
