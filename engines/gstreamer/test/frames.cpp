// frames BUNDLE: tests of single frames: late ones, padded ones, shared ones, metas.
#include <algorithm>
#include <thread>

#include "rig.hpp"

namespace {

const char* bundle;
mrcfa::Info info;

/// The library's stream before its first frame.
mrcfa::Stream& library() {
  static mrcfa::Stream stream = [] {
    mrcfa::Options options;
    options.backend = "onnxruntime:cpu";
    return mrcfa::Stream(bundle, options);
  }();
  stream.reset();
  return stream;
}

/// The processed and dropped frames of each message on the bus.
std::vector<std::pair<guint64, guint64>> qos_messages(GstBus* bus) {
  std::vector<std::pair<guint64, guint64>> made;
  while (GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_QOS)) {
    GstFormat format = GST_FORMAT_UNDEFINED;
    std::pair<guint64, guint64> counts;
    gst_message_parse_qos_stats(message, &format, &counts.first, &counts.second);
    expect(format == GST_FORMAT_BUFFERS, "QoS counts buffers");
    made.push_back(counts);
    gst_message_unref(message);
  }
  return made;
}

/// Reports a sink that got frame `number` late by `frames` frames.
void fall_behind(Rig& rig, int number, int frames) {
  const GstClockTimeDiff late = frames * static_cast<GstClockTimeDiff>(kDuration);
  gst_harness_push_upstream_event(rig.harness,
                                  gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 2.0, late,
                                                    static_cast<GstClockTime>(number) * kDuration));
}

/// Frames 4 to 7 are late: a sink that got frame 2 five frames late wants none up to 2 + 5.
void late_frames() {
  mrcfa::Stream& stream = library();
  Rig rig(bundle, "output", 1, "reset-on-discont", TRUE);
  rig.begin();
  for (int t = 0; t < 14; ++t) {
    if (t == 4) {
      fall_behind(rig, 2, 5);
    }
    const bool dropped = t >= 4 && t <= 7;
    const Bytes right = dropped ? Bytes() : segmented(stream, frame_of(info, t));
    GstBuffer* made = rig.push(buffer_of(frame_of(info, t), t));
    expect((made == nullptr) == dropped, "late frames alone are dropped: " + std::to_string(t));
    if (made != nullptr) {
      expect(bytes_of(made) == right, "what was skipped left no trace: " + std::to_string(t));
      expect(GST_BUFFER_IS_DISCONT(made) == (t == 8), "the gap is marked: " + std::to_string(t));
    }
    gst_clear_buffer(&made);
  }
  expect(rig.stat("processed") == 10 && rig.stat("dropped") == 4, "late frames are counted");
  expect(rig.stat("resets") == 0, "late frames do not make it forget");
  const std::vector<std::pair<guint64, guint64>> right = {{4, 1}, {4, 2}, {4, 3}, {4, 4}};
  expect(qos_messages(rig.bus) == right, "every late frame is posted");

  gst_harness_push_event(rig.harness, gst_event_new_flush_start());
  gst_harness_push_event(rig.harness, gst_event_new_flush_stop(TRUE));
  rig.begin();
  expect(!rig(frame_of(info, 0), 0).empty(), "after a flush nothing is late");

  g_object_set(rig.element, "qos", FALSE, nullptr);
  fall_behind(rig, 2, 5);
  expect(!rig(frame_of(info, 4), 4).empty(), "qos=false keeps late frames");
}

void latency() {
  Rig rig(bundle);
  gst_harness_set_upstream_latency(rig.harness, 7 * GST_MSECOND);
  rig.begin();
  expect(gst_harness_query_latency(rig.harness) == 7 * GST_MSECOND + kDuration,
         "latency is upstream's and a frame");
  GstMessage* message = gst_bus_pop_filtered(rig.bus, GST_MESSAGE_LATENCY);
  expect(message != nullptr, "a new latency is posted");
  gst_clear_message(&message);
  rig.begin("video/x-raw,format=RGB,width=160,height=96,framerate=0/1");
  expect(gst_harness_query_latency(rig.harness) == 7 * GST_MSECOND,
         "without a rate there is no latency to tell");
}

/// A frame with rows of 512 bytes.
GstBuffer* padded(const Bytes& frame) {
  constexpr std::size_t kStride = 512;
  const std::size_t width = 3 * static_cast<std::size_t>(info.width);
  Bytes rows(kStride * static_cast<std::size_t>(info.height), 99);
  for (std::size_t y = 0; y < static_cast<std::size_t>(info.height); ++y) {
    std::copy_n(frame.begin() + static_cast<std::ptrdiff_t>(y * width), width,
                rows.begin() + static_cast<std::ptrdiff_t>(y * kStride));
  }
  GstBuffer* buffer = gst_buffer_new_memdup(rows.data(), rows.size());
  gsize offset[GST_VIDEO_MAX_PLANES] = {0};
  gint stride[GST_VIDEO_MAX_PLANES] = {kStride};
  gst_buffer_add_video_meta_full(buffer, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_RGB,
                                 static_cast<guint>(info.width), static_cast<guint>(info.height), 1,
                                 offset, stride);
  return buffer;
}

void paddings() {
  const Bytes frame = frame_of(info, 5);
  mrcfa::Stream& stream = library();
  const Bytes right = segmented(stream, frame);
  Rig masks(bundle, "output", 1);
  GstBuffer* made = masks.begin().push(padded(frame));
  expect(bytes_of(made) == right, "padded rows in, a mask out");
  gst_buffer_unref(made);

  Rig plain(bundle);
  const Bytes painted = plain.begin()(frame);
  Rig rig(bundle);
  made = rig.begin().push(padded(frame));
  const Bytes rows = bytes_of(made);
  bool same = rows.size() == 512 * 96;
  for (std::size_t y = 0; same && y < 96; ++y) {
    for (std::size_t x = 0; x < 512; ++x) {
      same = same && rows[512 * y + x] == (x < 480 ? painted[480 * y + x] : 99);
    }
  }
  expect(same, "padded rows are painted, and their padding is left alone");
  gst_buffer_unref(made);
}

void shared_buffers() {
  const Bytes frame = frame_of(info, 6);
  for (const int output : {0, 2}) {
    Rig rig(bundle, "output", output);
    rig.begin();
    GstBuffer* kept = buffer_of(frame, 0);
    GstBuffer* made = rig.push(gst_buffer_ref(kept));
    expect(made != kept && bytes_of(kept) == frame, "a frame that others hold is left alone");
    expect((bytes_of(made) == frame) == (output == 2), "an overlay paints, a meta does not");
    expect((gst_buffer_peek_memory(made, 0) == gst_buffer_peek_memory(kept, 0)) == (output == 2),
           "a meta copies no pixels");
    expect(gst_buffer_get_mrcfa_mask(kept, nullptr, nullptr) == nullptr, "no mask on others'");
    gst_buffer_unref(made);
    gst_buffer_unref(kept);
  }
}

void metas() {
  const Bytes frame = frame_of(info, 7);
  mrcfa::Stream& stream = library();
  Rig rig(bundle, "output", 2);
  GstBuffer* made = rig.begin().push(buffer_of(frame, 0));
  GstBuffer* copy = gst_buffer_copy(made);
  gst_buffer_unref(made);
  int width = 0;
  int height = 0;
  GstBuffer* mask = gst_buffer_get_mrcfa_mask(copy, &width, &height);
  expect(mask != nullptr && bytes_of(mask) == segmented(stream, frame), "a copy has the mask");
  expect(width == info.width && height == info.height, "a mask tells its size");
  expect(gst_buffer_get_mrcfa_mask(mask, &width, &height) == nullptr, "no mask, no answer");
  gst_buffer_unref(copy);
}

/// Changes properties between frames, in another thread.
void changes() {
  const Bytes frame = frame_of(info, 8);
  Rig rig(bundle, "alpha", 0.0);
  rig.begin();
  expect(rig(frame) == frame, "alpha=0 shows the frame");
  g_object_set(rig.element, "alpha", 1.0, nullptr);
  expect(rig(frame) != frame, "alpha counts from the next frame on");
  g_object_set(rig.element, "classes", "no such class", nullptr);
  expect(!rig(frame).empty(), "an unknown class does not end the stream");
  const std::vector<std::string> said = sentences(rig.bus, GST_MESSAGE_WARNING);
  expect(said.size() == 1 && said[0].find("no class is called 'no_such_class'") == 0,
         "an unknown class is warned of");
  g_object_set(rig.element, "output", 1, nullptr);
  expect(rig(frame).size() == frame.size(), "output is taken over at the next start");

  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) {
      g_object_set(rig.element, "alpha", i / 2000.0, "classes", i % 2 == 0 ? "sky" : "", nullptr);
      rig.stat("processed");
    }
  });
  for (int t = 0; t < 20; ++t) {
    expect(rig(frame, t).size() == frame.size(), "frames flow while properties change");
  }
  other.join();
}

}  // namespace

int main(int, char** argv) {
  gst_init(nullptr, nullptr);
  bundle = argv[1];
  info = library().info();
  late_frames();
  latency();
  paddings();
  shared_buffers();
  metas();
  changes();
  gst_deinit();
  return failures == 0 ? 0 : 1;
}
