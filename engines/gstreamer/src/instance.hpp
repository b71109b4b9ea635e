// An instance of the element, and the virtual functions that GstBaseTransform calls.
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

/// The C++ members of the element. Properties and queries come from any thread.
struct Parts {
  std::mutex mutex;  ///< Guards the members below, up to the counts.
  Settings settings;
  bool repaint = false;  ///< `alpha` or `classes` changed.
  Extent extent;         ///< The bundle's frame size; zero while the element is stopped.
  std::string format;    ///< The format of its frames; empty while the element is stopped.
  Output output{};       ///< The property's value at the start.
  bool warned = false;   ///< True once a wrong size of upstream was reported.
  std::string runs_on;
  GstClockTime duration = 0;  ///< The duration of a frame; 0 if it is not known.
  guint64 processed = 0, dropped = 0, resets = 0;
  // For the streaming thread, between start and stop:
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

/// Lets the next frame start a new video.
void restart(GstMrcfa* self);

/// False, with an element error, if frames of these caps do not fit the bundle.
bool check_fit(GstMrcfa* self, GstCaps* caps);

/// Each file sets its part of the virtual functions.
void install_negotiation(GstBaseTransformClass* base);
void install_streaming(GstBaseTransformClass* base);

}  // namespace mrcfa
