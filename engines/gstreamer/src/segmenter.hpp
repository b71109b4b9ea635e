// A stream of the C++ library for frames of GStreamer.
#pragma once

#include <gst/video/video.h>

#include <cstdint>
#include <mrcfa.hpp>
#include <string>
#include <vector>

#include "painter.hpp"

namespace mrcfa {

/// The size of frames; zero until it is known.
struct Extent {
  int width = 0;
  int height = 0;
};

inline bool operator==(const Extent& one, const Extent& other) {
  return one.width == other.width && one.height == other.height;
}

/// A frame or a mask of GStreamer: a buffer, and how its pixels are laid out.
struct Picture {
  const GstVideoInfo& info;
  GstBuffer* buffer;
};

/// Segments frames of GStreamer. Their rows may be padded, those of the library are not; frames
/// without padding are not copied. Belongs to the streaming thread.
class Segmenter {
 public:
  /// Opens the bundle; throws Error.
  Segmenter(const std::string& bundle, const Options& options, double alpha,
            const std::string& classes);

  [[nodiscard]] const Info& info() const { return stream_.info(); }
  [[nodiscard]] Extent extent() const { return {info().width, info().height}; }
  /// GStreamer's name of the layout of the frames.
  [[nodiscard]] const char* format() const {
    return info().layout == Layout::nv12 ? "NV12" : info().layout == Layout::bgr ? "BGR" : "RGB";
  }

  /// Changes opacity and classes; throws Error and changes nothing if a class is unknown.
  void repaint(double alpha, const std::string& classes);

  /// Lets the next frame start a new video; false if there is nothing to forget.
  bool restart();

  /// Segments the next frame and tints it in place.
  void overlay(const Picture& picture);
  /// Segments the next frame and writes its mask.
  void mask(const Picture& picture, const Picture& mask);
  /// Segments the next frame and attaches its mask as a meta; the frame is not changed.
  void attach(const Picture& picture);

 private:
  const std::uint8_t* packed(const GstVideoFrame& frame);
  [[nodiscard]] int rows_of(guint plane) const;
  std::uint8_t* segmented(const GstVideoFrame& frame, std::uint8_t* mask);

  Stream stream_;
  Painter painter_;
  bool fresh_ = true;
  std::vector<std::uint8_t> packed_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace mrcfa
