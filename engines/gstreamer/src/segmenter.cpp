#include "segmenter.hpp"

#include <cstring>

#include "gstmrcfameta.h"

namespace mrcfa {
namespace {

std::uint8_t* row(const GstVideoFrame& frame, int y, guint plane = 0) {
  auto* const first = static_cast<std::uint8_t*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane));
  return first + static_cast<std::ptrdiff_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane)) * y;
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
    if (info().layout != Layout::nv12) {
      painter_.tint(row(mapped.frame, y), mask, width);
      continue;
    }
    painter_.tint_luma(row(mapped.frame, y), mask, width);
    if (y % 2 == 0) {
      painter_.tint_chroma(row(mapped.frame, y / 2, 1), mask, width);
    }
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

/// The bytes of the frame in the library's layout: those of the buffer if they lie without gaps, or
/// else a copy.
const std::uint8_t* Segmenter::packed(const GstVideoFrame& frame) {
  const bool nv12 = info().layout == Layout::nv12;
  const std::size_t width = static_cast<std::size_t>(info().width) * (nv12 ? 1 : 3);
  std::size_t used = 0;
  bool gaps = false;
  for (guint plane = 0; plane < (nv12 ? 2U : 1U); ++plane) {
    gaps |= row(frame, 0, plane) != row(frame, 0) + used ||
            static_cast<std::size_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane)) != width;
    used += width * static_cast<std::size_t>(rows_of(plane));
  }
  if (!gaps) {
    return row(frame, 0);
  }
  packed_.resize(used);
  std::uint8_t* target = packed_.data();
  for (guint plane = 0; plane < (nv12 ? 2U : 1U); ++plane) {
    for (int y = 0; y < rows_of(plane); ++y, target += width) {
      std::memcpy(target, row(frame, y, plane), width);
    }
  }
  return packed_.data();
}

int Segmenter::rows_of(guint plane) const {
  return plane == 0 ? info().height : info().height / 2;
}

/// Segments the next frame and returns its mask, which is in the given memory.
std::uint8_t* Segmenter::segmented(const GstVideoFrame& frame, std::uint8_t* mask) {
  const std::uint8_t* pixels = packed(frame);
  fresh_ = false;
  stream_.segment(pixels, info().height, info().width, mask);
  return mask;
}

}  // namespace mrcfa
