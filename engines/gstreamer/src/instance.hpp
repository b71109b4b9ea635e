// An instance of the element, and what GstBaseTransform calls of it.
#pragma once

#include <gst/base/gstbasetransform.h>
#include <gst/video/video.h>

#include <memory>
#include <mutex>
#include <string>

#include "properties.hpp"
#include "segmenter.hpp"

GST_DEBUG_CATEGORY_EXTERN(mrcfa_debug);
#define GST_CAT_DEFAULT mrcfa_debug

namespace mrcfa {

/// What C++ adds to GStreamer's part of the element. Properties and queries come from any thread.
struct Parts {
  std::mutex mutex;  ///< For what follows, up to the counts.
  Settings settings;
  bool repaint = false;  ///< `alpha` or `classes` changed.
  Extent extent;         ///< Zero from stop to start.
  Output output{};       ///< From start to stop what was set before.
  bool warned = false;   ///< Of a size that upstream asked for.
  std::string runs_on;
  GstClockTime duration = 0;  ///< Of a frame; 0 if it is not known.
  guint64 processed = 0, dropped = 0, resets = 0;
  // From start to stop, for the thread that streams:
  std::unique_ptr<Segmenter> segmenter;
  GstVideoInfo in{}, out{};
  GstCaps* caps = nullptr;
};

}  // namespace mrcfa

struct GstMrcfa {
  GstBaseTransform parent;
  mrcfa::Parts* parts;
};

namespace mrcfa {

inline GstMrcfa* mrcfa_of(gpointer object) {
  return static_cast<GstMrcfa*>(object);
}

GstBaseTransformClass* parent_class();

/// The next frame starts a new video.
void restart(GstMrcfa* self);

/// False, and an element error, if frames of these caps do not fit the bundle.
bool check_size(GstMrcfa* self, GstCaps* caps);

/// Each file's share of the virtual functions.
void install_negotiation(GstBaseTransformClass* base);
void install_streaming(GstBaseTransformClass* base);

}  // namespace mrcfa
