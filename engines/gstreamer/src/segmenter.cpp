#include "segmenter.hpp"

#include <cstring>

#include "gstmrcfameta.h"

namespace mrcfa {
namespace {

std::uint8_t* row(const GstVideoFrame& frame, int y) {
  auto* const first = static_cast<std::uint8_t*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, 0));
  return first + static_cast<std::ptrdiff_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, 0)) * y;
}

/// Maps a picture's pixels as long as this object lives.
class Mapped {
 public:
  Mapped(const Picture& picture, GstMapFlags flags) {
    if (gst_video_frame_map(&frame, &picture.info, picture.buffer, flags) == FALSE) {
      throw Error("a buffer does not hold the frame that its caps promise");
    }
  }
  ~Mapped() { gst_video_frame_unmap(&frame); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  GstVideoFrame frame{};
};

}  // namespace

Segmenter::Segmenter(const std::string& bundle, const Options& options, double alpha,
                     const std::string& classes)
    : stream_(bundle, options), painter_(info(), alpha, classes) {
  mask_.resize(static_cast<std::size_t>(info().width) * static_cast<std::size_t>(info().height));
}

void Segmenter::repaint(double alpha, const std::string& classes) {
  painter_ = Painter(info(), alpha, classes);
}

bool Segmenter::restart() {
  if (fresh_) {
    return false;
  }
  stream_.reset();
  fresh_ = true;
  return true;
}

void Segmenter::overlay(const Picture& picture) {
  const auto width = static_cast<std::size_t>(info().width);
  const Mapped mapped(picture, GST_MAP_READWRITE);
  const std::uint8_t* mask = segmented(mapped.frame, mask_.data());
  for (int y = 0; y < info().height; ++y, mask += width) {
    painter_.tint(row(mapped.frame, y), mask, width);
  }
}

void Segmenter::mask(const Picture& picture, const Picture& mask) {
  const auto width = static_cast<std::size_t>(info().width);
  const Mapped mapped(picture, GST_MAP_READ);
  const Mapped target(mask, GST_MAP_WRITE);
  if (GST_VIDEO_FRAME_PLANE_STRIDE(&target.frame, 0) == info().width) {
    painter_.select(segmented(mapped.frame, row(target.frame, 0)), mask_.size());
    return;
  }
  std::uint8_t* made = segmented(mapped.frame, mask_.data());
  painter_.select(made, mask_.size());
  for (int y = 0; y < info().height; ++y, made += width) {
    std::memcpy(row(target.frame, y), made, width);
  }
}

void Segmenter::attach(const Picture& picture) {
  {
    const Mapped mapped(picture, GST_MAP_READ);
    painter_.select(segmented(mapped.frame, mask_.data()), mask_.size());
  }
  GstBuffer* const mask = gst_buffer_new_memdup(mask_.data(), mask_.size());
  GstCustomMeta* const meta = gst_buffer_add_custom_meta(picture.buffer, GST_MRCFA_META_NAME);
  gst_structure_set(gst_custom_meta_get_structure(meta), "mask", GST_TYPE_BUFFER, mask, "width",
                    G_TYPE_INT, info().width, "height", G_TYPE_INT, info().height, nullptr);
  gst_buffer_unref(mask);
}

/// Segments the next frame and returns its mask, which is in the given memory.
std::uint8_t* Segmenter::segmented(const GstVideoFrame& frame, std::uint8_t* mask) {
  const std::uint8_t* rgb = row(frame, 0);
  const std::size_t width = 3 * static_cast<std::size_t>(info().width);
  if (static_cast<std::size_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, 0)) != width) {
    packed_.resize(3 * mask_.size());
    for (int y = 0; y < info().height; ++y) {
      std::memcpy(packed_.data() + width * static_cast<std::size_t>(y), row(frame, y), width);
    }
    rgb = packed_.data();
  }
  fresh_ = false;
  stream_.segment(rgb, info().height, info().width, mask);
  return mask;
}

}  // namespace mrcfa
