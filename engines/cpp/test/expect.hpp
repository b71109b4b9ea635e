// Common parts of the test programs: a count of failures, and frames to segment.
#pragma once

#include <iostream>
#include <mrcfa.hpp>
#include <string>
#include <vector>

using Bytes = std::vector<std::uint8_t>;

inline int failures = 0;

inline void expect(bool truth, const std::string& what) {
  if (!truth) {
    std::cerr << "not so: " << what << "\n";
    ++failures;
  }
}

template <class Work>
void expect_error(Work work, const std::string& part) {
  try {
    work();
    expect(false, part);
  } catch (const mrcfa::Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

inline std::size_t area(const mrcfa::Info& info) {
  return static_cast<std::size_t>(info.height) * static_cast<std::size_t>(info.width);
}

/// A frame of stripes, which move by `speed` from frame to frame.
inline Bytes frame_of(const mrcfa::Info& info, int number, int speed = 40) {
  Bytes frame(info.frame_bytes());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(i * 5 + static_cast<std::size_t>(speed * number));
  }
  return frame;
}

inline Bytes segmented(mrcfa::Stream& stream, const Bytes& frame) {
  const mrcfa::Info& info = stream.info();
  Bytes mask(area(info));
  stream.segment(frame.data(), info.height, info.width, mask.data());
  return mask;
}
