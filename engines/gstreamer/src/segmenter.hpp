// A stream of the C++ library that reads and writes frames of GStreamer.
#pragma once

#include <gst/video/video.h>

#include <cstdint>
#include <mrcfa.hpp>
#include <string>
#include <vector>

#include "painter.hpp"

namespace mrcfa {

/// The size of frames; zero as long as it is not known.
struct Extent {
  int width = 0;
  int height = 0;
};

inline bool operator==(const Extent& one, const Extent& other) {
  return one.width == other.width && one.height == other.height;
}

/// A frame of GStreamer, or a mask: what a buffer holds, and how.
struct Picture {
  const GstVideoInfo& info;
  GstBuffer* buffer;
};

/// Rows of GStreamer's frames may be padded, those of the library are not. Where they are not
/// padded either, nothing is copied. Belongs to the thread that streams.
class Segmenter {
 public:
  /// Opens the bundle; throws Error.
  Segmenter(const std::string& bundle, const Options& options, double alpha,
            const std::string& classes);

  [[nodiscard]] const Info& info() const { return stream_.info(); }
  [[nodiscard]] Extent extent() const { return {info().width, info().height}; }

  /// Shows other classes, or shows them otherwise; throws Error and leaves all as it was.
  void repaint(double alpha, const std::string& classes);

  /// The next frame starts a new video. False if there is nothing to forget.
  bool restart();

  /// The next frame, in each of the ways that it can leave the element: tinted in place,
  void overlay(const Picture& picture);
  /// as its mask,
  void mask(const Picture& picture, const Picture& mask);
  /// or untouched, with the mask as a meta.
  void attach(const Picture& picture);

 private:
  std::uint8_t* segmented(const GstVideoFrame& frame, std::uint8_t* mask);

  Stream stream_;
  Painter painter_;
  bool fresh_ = true;
  std::vector<std::uint8_t> packed_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace mrcfa
