// states BUNDLE CYCLES: tests of resets, states, sizes and errors of the element.
#include <cstdlib>
#include <functional>

#include "rig.hpp"

namespace {

const char* bundle;
mrcfa::Info info;
std::vector<Bytes> video;
std::vector<Bytes> whole;   ///< The library's masks of the video.
std::vector<Bytes> parted;  ///< The same, if a new video starts at `kCut`.
constexpr std::size_t kFrames = 12;
constexpr std::size_t kCut = 8;

void segment_with_library() {
  mrcfa::Options options;
  options.backend = "onnxruntime:cpu";
  mrcfa::Stream stream(bundle, options);
  info = stream.info();
  for (std::size_t t = 0; t < kFrames; ++t) {
    video.push_back(frame_of(info, static_cast<int>(t)));
    whole.push_back(segmented(stream, video[t]));
  }
  stream.reset();
  for (std::size_t t = 0; t < kFrames; ++t) {
    if (t == kCut) {
      stream.reset();
    }
    parted.push_back(segmented(stream, video[t]));
  }
  expect(parted[kFrames - 1] != whole[kFrames - 1], "a reset shows in the masks");
}

void flush(Rig& rig) {
  gst_harness_push_event(rig.harness, gst_event_new_flush_start());
  gst_harness_push_event(rig.harness, gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_harness_push_event(rig.harness, gst_event_new_segment(&segment));
}

/// Sends twelve frames, with an event after the eighth.
void expect_reset(Rig& rig, const std::string& what, bool reset,
                  const std::function<void()>& event) {
  flush(rig);
  const guint64 before = rig.stat("resets");
  for (std::size_t t = 0; t < kFrames; ++t) {
    if (t == kCut) {
      event();
    }
    GstBuffer* buffer = buffer_of(video[t], static_cast<int>(t));
    if (t == kCut && what.find("DISCONT") != std::string::npos) {
      GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
    }
    GstBuffer* made = rig.push(buffer);
    expect(made != nullptr && bytes_of(made) == (reset ? parted : whole)[t],
           what + ", frame " + std::to_string(t));
    gst_clear_buffer(&made);
  }
  expect(rig.stat("resets") - before == (reset ? 1 : 0), what + ": resets");
}

void resets() {
  Rig rig(bundle, "output", 1);
  rig.begin();
  const auto nothing = [] {};
  expect_reset(rig, "a flush", true, [&] { flush(rig); });
  expect_reset(rig, "a new stream", true,
               [&] { gst_harness_push_event(rig.harness, gst_event_new_stream_start("another")); });
  expect_reset(rig, "other caps", true,
               [&] { rig.begin("video/x-raw,format=RGB,width=160,height=96,framerate=30/1"); });
  expect_reset(rig, "the same caps", false,
               [&] { rig.begin("video/x-raw,format=RGB,width=160,height=96,framerate=30/1"); });
  expect_reset(rig, "a reconfiguration", false,
               [&] { gst_harness_push_upstream_event(rig.harness, gst_event_new_reconfigure()); });
  expect_reset(rig, "DISCONT", false, nothing);
  g_object_set(rig.element, "reset-on-discont", TRUE, nullptr);
  expect_reset(rig, "DISCONT with reset-on-discont", true, nothing);
  expect(rig.stat("processed") == 7 * kFrames && rig.stat("dropped") == 0, "all are counted");
}

void states(int cycles) {
  Rig rig(bundle, "output", 1);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    rig.begin();
    expect(rig(video[0]) == whole[0], "a mask in cycle " + std::to_string(cycle));
    expect(rig.stat("processed") == 1, "counts begin anew");
    if (cycle % 2 == 0) {
      gst_harness_push_event(rig.harness, gst_event_new_eos());
    }
    expect(gst_element_set_state(rig.element, GST_STATE_NULL) == GST_STATE_CHANGE_SUCCESS, "NULL");
    expect(gst_element_set_state(rig.element, GST_STATE_PLAYING) == GST_STATE_CHANGE_SUCCESS,
           "PLAYING");
    gst_harness_push_event(rig.harness, gst_event_new_stream_start("again"));
  }
}

void sizes() {
  Rig rig(bundle, "output", 1);
  rig.begin("video/x-raw,format=RGB,width=320,height=240,framerate=25/1");
  const std::vector<std::string> said = sentences(rig.bus, GST_MESSAGE_ERROR);
  expect(!said.empty() && said[0] ==
                              "the frame is 240x320, but the bundle takes 96x160; put "
                              "videoscale before mrcfa, or resize in the graphs: mrcfa "
                              "export --frame 240x320",
         "another size is an error");
  rig.begin();
  expect(rig(video[0]) == whole[0], "the right size works after");

  GstCaps* asked = gst_caps_from_string(
      "video/x-raw,format={RGB,I420},width=320,height=240; "
      "video/x-raw,format=BGR,width=320,height=240");
  GstPad* pad = gst_element_get_static_pad(rig.element, "sink");
  for (int times = 0; times < 2; ++times) {
    GstCaps* possible = gst_pad_query_caps(pad, asked);
    expect(gst_caps_is_empty(possible) != FALSE, "other sizes do not fit");
    gst_caps_unref(possible);
  }
  expect(sentences(rig.bus, GST_MESSAGE_WARNING).size() == 1, "upstream's size is warned of once");
  gst_object_unref(pad);
  gst_caps_unref(asked);

  sentences(rig.bus, GST_MESSAGE_ERROR);
  GstBuffer* small = gst_buffer_new_allocate(nullptr, 100, nullptr);
  expect(gst_harness_push(rig.harness, small) == GST_FLOW_ERROR, "a short buffer");
  expect(sentences(rig.bus, GST_MESSAGE_ERROR) ==
             std::vector<std::string>{"a buffer does not hold the frame that its caps promise"},
         "a short buffer is named");
  expect(rig(video[1]) == whole[1], "and leaves the memory as it was");

  gst_harness_push_event(rig.harness, gst_event_new_eos());
  bool ended = false;
  while (GstEvent* event = gst_harness_try_pull_event(rig.harness)) {
    ended = GST_EVENT_TYPE(event) == GST_EVENT_EOS;
    gst_event_unref(event);
  }
  expect(ended, "EOS comes last");
}

/// Opens a broken bundle. It uses no harness, because a harness would insist on a start.
void expect_refusal(GstElement* element, GstBus* bus, const char* place, const char* backend,
                    const char* classes, const std::string& part) {
  g_object_set(element, "bundle", place, "backend", backend, "classes", classes, nullptr);
  expect(gst_element_set_state(element, GST_STATE_PAUSED) == GST_STATE_CHANGE_FAILURE, part);
  const std::vector<std::string> said = sentences(bus, GST_MESSAGE_ERROR);
  expect(said.size() == 1 && said[0].find(part) != std::string::npos, part);
  gst_element_set_state(element, GST_STATE_NULL);
}

void refusals() {
  GstElement* element = gst_element_factory_make("mrcfa", nullptr);
  GstBus* bus = gst_bus_new();
  gst_element_set_bus(element, bus);
  const auto refused = [&](const char* place, const char* backend, const char* classes,
                           const std::string& part) {
    expect_refusal(element, bus, place, backend, classes, part);
  };
  refused(nullptr, "auto", "", "no bundle is named; set bundle=FOLDER");
  refused("/nowhere", "auto", "", "/nowhere");
  refused("/usr", "auto", "", "/usr is no bundle: it has no manifest.json");
  refused(bundle, "openvino", "", "unknown backend 'openvino'; choose one of auto, ");
  refused(bundle, "auto", "wall, sky light", "no class is called 'sky_light'; there are wall, ");
  refused(bundle, "auto", "ceil", "no class is called 'ceil'; did you mean ceiling");
  g_object_set(element, "classes", " Wall , CEILING,", nullptr);
  expect(gst_element_set_state(element, GST_STATE_PAUSED) == GST_STATE_CHANGE_SUCCESS,
         "after refusals the element works once it is told right");
  gst_element_set_state(element, GST_STATE_NULL);
  gst_element_set_bus(element, nullptr);
  gst_object_unref(element);
  gst_object_unref(bus);
}

}  // namespace

int main(int, char** argv) {
  gst_init(nullptr, nullptr);
  bundle = argv[1];
  segment_with_library();
  resets();
  states(std::atoi(argv[2]));
  sizes();
  refusals();
  gst_deinit();
  return failures == 0 ? 0 : 1;
}
