// player PIPELINE FRAMES MASKS COUNT [AFTER NANOSECONDS]: plays a pipeline that ends in `mrcfa
// output=meta ! appsink name=sink`, and writes COUNT frames and their masks to two files. After
// AFTER frames it seeks, with a flush. If there are fewer, the exit code is 1 and the bus's errors
// are shown.
#include <gst/gst.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "gstmrcfameta.h"

namespace {

void append(std::ofstream& file, GstBuffer* buffer) {
  GstMapInfo map;
  gst_buffer_map(buffer, &map, GST_MAP_READ);
  file.write(reinterpret_cast<const char*>(map.data), static_cast<std::streamsize>(map.size));
  gst_buffer_unmap(buffer, &map);
}

void print_errors(GstElement* pipeline) {
  GstBus* bus = gst_element_get_bus(pipeline);
  while (GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR)) {
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    std::cerr << error->message << "\n";
    g_error_free(error);
    gst_message_unref(message);
  }
  gst_object_unref(bus);
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(nullptr, nullptr);
  GstElement* pipeline = gst_parse_launch(argv[1], nullptr);
  GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
  std::ofstream frames(argv[2], std::ios::binary);
  std::ofstream masks(argv[3], std::ios::binary);
  const int count = std::atoi(argv[4]);
  const int after = argc > 5 ? std::atoi(argv[5]) : -1;
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  int played = 0;
  for (; played < count; ++played) {
    if (played == after) {
      gst_element_seek_simple(
          pipeline, GST_FORMAT_TIME,
          static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE),
          std::atoll(argv[6]));
    }
    GstSample* sample = nullptr;
    g_signal_emit_by_name(sink, "pull-sample", &sample);
    if (sample == nullptr) {
      break;
    }
    GstBuffer* frame = gst_sample_get_buffer(sample);
    append(frames, frame);
    if (GstBuffer* mask = gst_buffer_get_mrcfa_mask(frame, nullptr, nullptr)) {
      append(masks, mask);
    }
    gst_sample_unref(sample);
  }
  print_errors(pipeline);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(sink);
  gst_object_unref(pipeline);
  gst_deinit();
  return played == count ? 0 : 1;
}
